"""The loss in equal steps: which runs are compared, at which rate, and what is said of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from eureka.runs import Run
from eureka.study.arms import group_runs
from eureka.study.comparison import holm
from eureka.study.losses import after_steps, compare_losses, median_loss

MakeRun = Callable[..., Run]
MakeRuns = Callable[..., list[Run]]


@pytest.fixture
def make_runs(make_run: MakeRun) -> MakeRuns:
    """Runs of one fix at one rate, a seed for each loss; an infinite loss is that of a run that diverged."""

    def make(fix: str, losses: Sequence[float], lr: float = 1e-3, *, early_stop: bool = False) -> list[Run]:
        made = []
        for seed, loss in enumerate(losses):
            changes = {"attention.name": fix, "training.lr": lr, "training.seed": seed, "training.early_stop": early_stop}
            run = make_run(changes)
            assert run.outcome is not None
            end = {"status": "diverged", "final_loss": None} if math.isinf(loss) else {"final_loss": loss}
            made.append(replace(run, outcome=replace(run.outcome, **end)))
        return made

    return make


def test_a_fix_that_ends_lower_is_called_lower_with_its_interval(make_runs: MakeRuns) -> None:
    runs = make_runs("softmax", [3.0, 3.1, 3.2, 3.3, 3.4]) + make_runs("norm_softmax", [2.0, 2.1, 2.2, 2.3, 2.4])
    [one] = compare_losses(group_runs(runs))
    assert one.verdict == "1.000 lower [0.700, 1.300], p = 0.0079, n = 5 (2.200 against 3.200)"
    assert (one.steps, one.loss, one.baseline_loss) == (1000, 2.2, 3.2)
    assert json.loads(json.dumps(one.to_json()))["lower"]["value"] == pytest.approx(1.0)


def test_a_fix_that_ends_higher_is_called_higher(make_runs: MakeRuns) -> None:
    runs = make_runs("softmax", [2.0, 2.1, 2.2, 2.3, 2.4]) + make_runs("norm_softmax", [3.0, 3.1, 3.2, 3.3, 3.4])
    [one] = compare_losses(group_runs(runs))
    assert one.verdict == "1.000 higher [0.700, 1.300], p = 0.0079, n = 5 (3.200 against 2.200)"


def test_few_runs_and_small_differences_decide_nothing(make_runs: MakeRuns) -> None:
    [few] = compare_losses(group_runs(make_runs("softmax", [3.0, 3.1]) + make_runs("norm_softmax", [2.0, 2.1])))
    assert few.verdict == "not enough runs to tell (2 against 2); 1.000 lower so far (2.050 against 3.050)"
    runs = make_runs("softmax", [3.0, 3.1, 3.2, 3.3]) + make_runs("norm_softmax", [3.05, 3.0, 3.35, 3.15])
    [alike] = compare_losses(group_runs(runs))
    assert alike.verdict.startswith("no difference seen: ")


def test_runs_that_were_to_stop_early_are_not_compared(make_runs: MakeRuns) -> None:
    runs = make_runs("softmax", [3.0] * 5, early_stop=True) + make_runs("norm_softmax", [2.0] * 5, early_stop=True)
    assert compare_losses(group_runs(runs)) == []


def test_each_arm_counts_at_the_rate_at_which_it_ends_lowest(make_runs: MakeRuns) -> None:
    runs = make_runs("softmax", [3.0, 3.1, 3.2, 3.3], 1e-3) + make_runs("softmax", [1.0, 1.1, 1.2, 1.3], 1e-2)
    runs += make_runs("norm_softmax", [0.5, 0.6, 0.7, 0.8], 1e-3) + make_runs("norm_softmax", [math.inf] * 4, 1e-2)
    [one] = compare_losses(group_runs(runs))
    assert (one.best_lr, one.baseline_best_lr) == (1e-3, 1e-2)
    assert one.loss == pytest.approx(0.65)
    assert one.baseline_loss == pytest.approx(1.15)


def test_a_rate_is_chosen_on_other_seeds_than_it_is_judged_on(make_runs: MakeRuns) -> None:
    """Seeds 0 and 2 are lucky at one rate, seeds 1 and 3 at the other: judged on the other half, none is."""
    runs = make_runs("softmax", [1.0, 9.0, 1.0, 9.0], 1e-3) + make_runs("softmax", [9.0, 1.0, 9.0, 1.0], 1e-2)
    [one] = compare_losses(group_runs(runs + make_runs("norm_softmax", [1.0] * 4)))
    assert one.baseline_loss == 9.0


def test_a_run_that_diverged_is_the_worst(make_runs: MakeRuns) -> None:
    runs = make_runs("softmax", [2.0, 2.1, 2.2, 2.3]) + make_runs("norm_softmax", [math.inf] * 4)
    [one] = compare_losses(group_runs(runs))
    assert one.loss is None
    assert one.verdict == "higher, since 4 of 4 runs diverged against 0 of 4, p = 0.029, n = 4 (– against 2.150)"
    assert median_loss(runs[4:]) is None


def test_p_values_are_corrected_for_all_comparisons(make_runs: MakeRuns) -> None:
    low, high = [2.0, 2.1, 2.2, 2.3, 2.4], [3.0, 3.1, 3.2, 3.3, 3.4]
    found = compare_losses(group_runs(make_runs("softmax", high) + make_runs("norm_softmax", low) + make_runs("qk_norm", low)))
    assert [one.p_corrected for one in found] == holm([one.p_value for one in found])
    assert all(one.p_corrected > one.p_value for one in found)


def test_arms_that_all_diverge_have_no_losses_to_compare(make_runs: MakeRuns) -> None:
    runs = make_runs("softmax", [math.inf] * 4) + make_runs("norm_softmax", [math.inf] * 4)
    [one] = compare_losses(group_runs(runs))
    assert one.verdict.startswith("no difference seen: no losses to compare, since 4 of 4 runs diverged against 4 of 4, p = 1")


def test_settings_that_differ_in_steps_are_not_told_as_one_number(make_runs: MakeRuns) -> None:
    one = compare_losses(group_runs(make_runs("softmax", [2.0] * 4) + make_runs("norm_softmax", [1.0] * 4)))
    assert after_steps(one) == f"{one[0].steps:,} steps"
    assert after_steps([*one, replace(one[0], steps=2 * one[0].steps)]) == "all steps"
