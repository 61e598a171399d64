"""The sentence on top is computed, not written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eureka.report.groups import Fix, Groups
from eureka.report.headline import headline, notes
from eureka.runs import Rescaled, StartRecord

GroupsOf = Callable[[Path], Groups]
Said = Callable[[Path], str]


@pytest.fixture
def said(groups_of: GroupsOf) -> Said:
    return lambda folder: "".join(part.name if isinstance(part, Fix) else part for part in headline(groups_of(folder)))


def test_the_fix_that_left_the_plateau_comes_first_with_its_median_step(study: Path, said: Said) -> None:
    assert said(study) == "norm_softmax left the plateau in 3 of 3 runs (median step 575); softmax in 0 of 3 within 1,200 steps."


def test_a_median_that_is_not_known_is_not_told(tmp_path: Path, plant: Any, said: Said) -> None:
    for seed, leap in enumerate([500, None, None]):
        plant(tmp_path, {"training.seed": seed}, leap=leap)
    assert said(tmp_path) == "softmax left the plateau in 1 of 3 runs within 1,200 steps (first at step 525)."


def test_budgets_that_differ_are_not_told_as_one(tmp_path: Path, plant: Any, said: Said) -> None:
    plant(tmp_path, {"training.steps": 1200})
    plant(tmp_path, {"training.steps": 600, "training.seed": 1})
    assert said(tmp_path) == "No run left the plateau: softmax in 0 of 2 runs."


def test_over_several_rates_it_says_at_how_many(tmp_path: Path, plant: Any, said: Said) -> None:
    for lr in (1e-4, 3e-4, 1e-3):
        plant(tmp_path, {"training.lr": lr}, leap=700 if lr == 1e-3 else None)
        plant(tmp_path, {"training.lr": lr, "attention.name": "norm_softmax"}, leap=300)
    told = "norm_softmax left the plateau in 3 of 3 runs (at 3 of 3 learning rates); softmax in 1 of 3 within 1,200 steps (at 1)."
    assert said(tmp_path) == told


def test_diverged_runs_count_and_are_named(tmp_path: Path, plant: Any, said: Said, groups_of: GroupsOf) -> None:
    plant(tmp_path, status="diverged", reached=100)
    plant(tmp_path, {"training.seed": 1})
    assert said(tmp_path) == "No run left the plateau within 1,200 steps: softmax in 0 of 2 runs."
    assert notes(groups_of(tmp_path)) == ["Diverged, and counted as not having left the plateau: 1 run."]


def test_of_many_unfinished_runs_three_are_named(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for seed in range(5):
        plant(tmp_path, {"training.seed": seed}, ended=False, reached=100, name=f"run{seed}")
    told = "5 runs (run0 at step 100, run1 at step 100, run2 at step 100 and 2 more)."
    assert notes(groups_of(tmp_path)) == [f"Unfinished and not counted, drawn dashed: {told}"]


def test_what_a_start_rescaled_is_told_over_all_runs_that_have_it(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(tmp_path, {"model.start": "paper"})
    for seed, before in enumerate([0.125, 0.25]):
        run = plant(tmp_path, {"model.start": "clear", "training.seed": seed}, leap=300)
        spreads = [Rescaled(f"blocks.{i}", [0.0625, before], [1.0, 1.0]) for i in range(2)]
        run.write_start(StartRecord("clear", [Rescaled("positions", [before], [1.0])], spreads))
    assert notes(groups_of(tmp_path)) == [
        "Before the first step, start=clear rescaled learned positions, which were 0.125 to 0.250 (1.000 afterwards) times the"
        " content that they are added to, and W_Q and W_K, whose logits had a row spread of 0.062 to 0.250 (1.000 afterwards)."
    ]
