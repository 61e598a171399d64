"""Units, logging intervals and blemishes of a log change nothing, or little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eureka.curves.detector import detect
from eureka.curves.grid import Array
from eureka.curves.moment import EurekaMoment
from eureka.curves.sketch import Difficulty, Truth
from eureka.curves.synthetic import plant

KINDS = ["single", "sloping", "staircase", "bump", "grokking", "spiky", "power_law", "spikes", "warm_down"]


def curve(kind: str, seed: int) -> tuple[Array, Array]:
    planted = plant(kind, np.random.default_rng(seed), Difficulty(noise=0.03))
    good = np.isfinite(planted.values)
    return planted.steps[good], planted.values[good]


def summary(moments: list[EurekaMoment]) -> list[tuple[str, float, float]]:
    return [(moment.kind, moment.steepest, moment.confidence) for moment in moments]


@settings(max_examples=25, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 50),
    loss=st.sampled_from([1e-6, 2.0**-7, 3.0, 1e5]),
    step=st.sampled_from([1e-3, 0.5, 64.0, 1e4]),
)
def test_multiplying_loss_and_steps_changes_nothing(kind: str, seed: int, loss: float, step: float) -> None:
    x, y = curve(kind, seed)
    plain, scaled = detect(y, x), detect(y * loss, x * step)
    assert [moment.kind for moment in scaled] == [moment.kind for moment in plain]
    for a, b in zip(plain, scaled, strict=True):
        assert b.steepest == pytest.approx(a.steepest * step, rel=1e-4)
        assert b.before == pytest.approx(a.before * loss, rel=1e-6)
        assert b.confidence == pytest.approx(a.confidence, abs=1e-4)


@settings(max_examples=15, deadline=None)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 50), shuffle=st.integers(0, 100))
def test_order_and_nans_change_nothing(kind: str, seed: int, shuffle: int) -> None:
    x, y = curve(kind, seed)
    rng = np.random.default_rng(shuffle)
    holes = np.sort(rng.integers(0, len(x), 20))
    steps, values = np.insert(x, holes, x[holes]), np.insert(y, holes, np.nan)
    order = rng.permutation(len(steps))
    assert summary(detect(values[order], steps[order])) == summary(detect(y, x))


def test_points_logged_twice_change_nothing() -> None:
    x, y = curve("single", 4)
    assert summary(detect(np.repeat(y, 2), np.repeat(x, 2))) == summary(detect(y, x))


def logged_every_fifth(seed: int) -> tuple[Truth, float, list[EurekaMoment], list[EurekaMoment]]:
    """A planted drop, the distance of its logged steps, and what is found in the whole log and in a fifth of it."""
    planted = plant("single", np.random.default_rng(seed), Difficulty(noise=0.02, points=(3000, 4000)))
    [truth] = planted.truths
    return (
        truth,
        float(np.median(np.diff(planted.steps))),
        detect(planted.values, planted.steps),
        detect(planted.values[::5], planted.steps[::5]),
    )


def test_logging_every_fifth_step_finds_the_same_moments() -> None:
    """A drop of fewer than 40 logged points has fewer than eight in such a log: then it may be missed, but not misplaced."""
    long = short = same = 0
    for seed in range(30):
        truth, spacing, full, thin = logged_every_fifth(seed)
        if truth.length >= 40 * spacing:
            long += 1
            same += len(full) == len(thin) == 1 and abs(full[0].steepest - thin[0].steepest) < 0.2 * truth.length
        else:
            short += 1
            assert all(abs(moment.steepest - truth.steepest) < truth.length + 5 * spacing for moment in thin), seed
    assert (long, short) == (25, 5)
    assert same >= 24


def test_a_few_missing_stretches_do_no_harm() -> None:
    t = np.arange(2000.0)
    y = 2.0 - 1.5 / (1.0 + np.exp(-(t - 1200.0) / 12.0)) + 0.03 * np.random.default_rng(0).standard_normal(2000)
    keep = ~(((t > 300) & (t < 400)) | ((t > 1500) & (t < 1600)))
    [whole], [part] = detect(y), detect(y[keep], t[keep])
    assert part.steepest == pytest.approx(whole.steepest, abs=5.0)


@pytest.mark.parametrize("value", [1e6, -1e6, np.inf, 0.0])
def test_one_absurd_value_does_no_harm(value: float) -> None:
    t = np.arange(2000.0)
    y = 2.0 - 1.5 / (1.0 + np.exp(-(t - 1200.0) / 12.0)) + 0.03 * np.random.default_rng(0).standard_normal(2000)
    y[500] = value
    eurekas = [moment for moment in detect(y) if moment.kind == "eureka"]
    assert [round(moment.steepest, -1) for moment in eurekas] == [1200.0]
