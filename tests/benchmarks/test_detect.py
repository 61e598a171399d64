"""The comparison with ruptures: it is fair to ruptures, and ours is ahead."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import detect as bench
from eureka.curves.detector import detect
from eureka.curves.sketch import Planted

pytest.importorskip("ruptures")


@pytest.mark.parametrize("name", list(bench.searches()))
def test_every_search_of_ruptures_finds_a_plain_step_at_its_best_penalty(name: str) -> None:
    t = np.arange(800.0)
    y = np.where(t < 500, 2.0, 1.0) + 0.05 * np.random.default_rng(0).standard_normal(800)
    curve = Planted(name="step", steps=t, values=y)
    found = [[moment.steepest for moment in bench.changes(bench.searches()[name], curve, pen)] for pen in bench.PENALTIES]
    assert any(len(steps) == 1 and abs(steps[0] - 500.0) <= 5.0 for steps in found)


def test_ours_is_ahead_of_a_search_at_its_best_penalty() -> None:
    curves = bench.planted(2, seed=31)
    score, seconds = bench.timed(lambda curve: detect(curve.values, curve.steps, lr=curve.lr), curves)
    ours = bench.result_of("eureka", score, seconds, curves)
    theirs = bench.best_of("Binseg", bench.searches()["ruptures Binseg"], curves)
    assert ours.precision > theirs.precision
    assert ours.recall >= theirs.recall
    assert ours.curves == theirs.curves == len(curves)
