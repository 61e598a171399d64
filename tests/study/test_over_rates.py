"""An arm over all rates, beside the baseline at its best."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eureka.runs import Run
from eureka.study.arms import group_runs
from eureka.study.over_rates import over_rates

MakeRun = Callable[..., Run]
STEPS: dict[tuple[str, float], list[int | None]] = {
    ("softmax", 1e-4): [None] * 4,
    ("softmax", 1e-3): [500, 600, 500, 600],
    ("norm_softmax", 1e-4): [400, 300, 400, None],
    ("norm_softmax", 1e-3): [100, 200, 100, 200],
}


@pytest.fixture
def runs(make_run: MakeRun) -> list[Run]:
    return [
        make_run({"attention.name": fix, "training.lr": lr, "training.seed": seed}, step)
        for (fix, lr), steps in STEPS.items()
        for seed, step in enumerate(steps)
    ]


def test_every_run_counts_and_the_baseline_is_taken_at_its_best_rate(runs: list[Run]) -> None:
    softmax, fix = over_rates(group_runs(runs))
    assert (softmax.leaps, softmax.runs, softmax.sooner) == (4, 8, None)
    assert (fix.leaps, fix.runs) == (7, 8)
    waits = [1000 if step is None else step for (name, _), steps in STEPS.items() for step in steps if name == "norm_softmax"]
    assert fix.mean_wait.value == pytest.approx(sum(waits) / 8)
    assert fix.sooner is not None
    assert fix.sooner.value == pytest.approx(550 / (sum(waits) / 8))
    assert fix.share_interval == pytest.approx((0.4735, 0.9968), abs=1e-4)  # Clopper and Pearson's table, 7 of 8


def test_an_arm_at_one_rate_and_a_run_that_has_not_ended_are_left_out(runs: list[Run], make_run: MakeRun) -> None:
    alone = make_run({"attention.name": "sigmoid", "training.lr": 1e-3, "training.seed": 0}, 100)
    waiting = make_run({"attention.name": "softmax", "training.lr": 1e-3, "training.seed": 9}, ended=False)
    found = over_rates(group_runs([*runs, alone, waiting]))
    assert [(one.arm.label, one.runs) for one in found] == [("softmax", 8), ("norm_softmax", 8)]
    assert over_rates(group_runs([alone])) == []


def test_without_a_baseline_there_is_nothing_to_be_sooner_than(runs: list[Run]) -> None:
    [fix] = over_rates(group_runs([run for run in runs if run.config.fix == "norm_softmax"]))
    assert (fix.runs, fix.sooner) == (8, None)
