"""Comparisons say what the runs say and no more."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.runs import Run, RunFolder
from eureka.study.arms import group_runs
from eureka.study.comparison import Comparison, compare_arms, corrected, holm, judged_runs, smallest_p
from eureka.study.survival import Estimate

Plant = Callable[..., Run]


@pytest.fixture
def plant(make_run: Callable[..., Run]) -> Plant:
    def one(fix: str, lr: float, seed: int, step: int | None, **training: Any) -> Run:
        others = {f"training.{key}": value for key, value in training.items()}
        return make_run({"attention.name": fix, "training.lr": lr, "training.seed": seed} | others, step)

    return one


def compare(runs: Sequence[Run]) -> list[Comparison]:
    return compare_arms(group_runs(runs))


def test_a_clear_difference_is_told_with_interval_p_and_n(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, 900 + 10 * s) for s in range(6)] + [
        plant("norm_softmax", 1e-3, s, 300 + 10 * s) for s in range(6)
    ]
    [found] = compare(runs)
    assert (found.arm.label, found.baseline.label, found.runs) == ("norm_softmax", "softmax", 6)
    assert found.p_value == pytest.approx(2 / 924)
    assert found.speed_up.value == pytest.approx(925 / 325)
    assert found.verdict.startswith("2.8× sooner [2.")
    assert found.verdict.endswith("p = 0.0022, n = 6")


def test_arms_are_compared_within_a_condition_and_corrected_for_all_that_is_told(plant: Plant) -> None:
    runs = [
        plant(fix, 1e-3, s, step + 10 * s, batch_size=size)
        for size, fix, step in [
            (64, "softmax", 900),
            (64, "norm_softmax", 300),
            (256, "softmax", 500),
            (256, "norm_softmax", 500),
        ]
        for s in range(6)
    ]
    small, large = compare(runs)
    assert (small.arm.label, small.baseline.label) == (large.arm.label, large.baseline.label) == ("norm_softmax", "softmax")
    assert [one.condition.settings["training.batch_size"] for one in (small, large)] == [64, 256]
    assert small.p_corrected == pytest.approx(2 * 2 / 924)
    assert small.verdict.startswith("2.8× sooner")
    assert large.verdict.startswith("no difference seen")


def test_a_ratio_that_one_run_turns_round_is_not_claimed(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, 70 + s) for s in range(20)]
    runs += [plant("norm_softmax", 1e-3, s, 40 + s if s else None) for s in range(20)]
    [found] = compare(runs)
    assert found.p_value < 0.05
    assert found.verdict.startswith("not clear, most runs say the opposite: 1.2× later [")
    assert found.standing == "unclear"


def test_a_small_difference_that_is_decided_is_told_in_two_decimals(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, 620 + s) for s in range(6)] + [plant("norm_softmax", 1e-3, s, 600 + s) for s in range(6)]
    [found] = compare(runs)
    assert found.standing == "sooner"
    assert found.verdict.startswith("1.03× sooner [")


def test_nothing_is_decided_while_runs_are_unfinished(plant: Plant, tmp_path: Path) -> None:
    """Those that leap end first: of eight runs, the four that have ended all leapt."""
    runs = [plant("softmax", 1e-3, s, 500 + s) for s in range(8)] + [plant("norm_softmax", 1e-3, s, 200 + s) for s in range(4)]
    waiting = [replace(plant("norm_softmax", 1e-3, s, None), outcome=None) for s in range(4, 8)]
    [before] = compare([*runs, *waiting])
    assert before.standing == "sooner"
    begun = [replace(run, folder=RunFolder(tmp_path / str(i))) for i, run in enumerate(waiting)]
    for run in begun:
        run.folder.path.mkdir()
        run.folder.metrics_file.touch()
    [found] = compare([*runs, *begun])
    assert found.standing == "open"
    assert found.verdict == "not decided yet, 4 runs unfinished: 2.5× sooner so far"


def test_a_rate_with_few_seeds_is_not_the_best_one(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, 900 + 10 * s) for s in range(10)]
    runs += [plant("norm_softmax", 1e-3, s, 300 + 10 * s) for s in range(10)]
    [alone] = compare(runs)
    [found] = compare([*runs, plant("norm_softmax", 3e-3, 0, 100)])
    assert (found.best_lr, found.runs, found.p_value) == (alone.best_lr, 10, alone.p_value)


def test_halves_go_by_seeds_where_a_rate_lacks_some(plant: Plant) -> None:
    rates = {1e-3: range(6), 3e-3: range(1, 6)}
    [arm] = group_runs([plant("softmax", lr, s, 500) for lr, seeds in rates.items() for s in seeds]).conditions[0].arms
    seen: list[list[set[int]]] = []

    def first(choices: Mapping[float, Sequence[Run]]) -> float:
        seen.append([{run.config.seed for run in runs} for runs in choices.values()])
        return min(choices)

    judged_runs(arm, first)
    assert seen[1:] == [[{1, 3, 5}, {1, 3, 5}], [{0, 2, 4}, {2, 4}]]


def test_a_comparison_that_could_not_be_decided_takes_no_share_of_the_others() -> None:
    assert corrected([0.029, 0.4], [0.029, 0.2]) == [0.029, None]
    assert corrected([0.01, 0.02], [0.01, 0.01]) == holm([0.01, 0.02])
    assert corrected([], []) == []


def test_four_runs_a_side_decide_whatever_a_single_run_of_a_third_arm_does(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, 900 + s) for s in range(4)] + [plant("norm_softmax", 1e-3, s, 300 + s) for s in range(4)]
    single, of_four = compare([*runs, plant("qk_norm", 1e-3, 0, 300)])[::-1]
    assert (single.arm.label, single.standing) == ("qk_norm", "too few")
    assert (of_four.standing, of_four.p_corrected) == ("sooner", of_four.p_value)


def test_three_seeds_are_not_enough_to_tell(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, None) for s in range(3)] + [plant("norm_softmax", 1e-3, s, 500) for s in range(3)]
    [found] = compare(runs)
    assert found.verdict == "not enough runs to tell (3 against 3); 2.0× sooner so far"


def test_no_difference_is_called_none(plant: Plant) -> None:
    rng = np.random.default_rng(0)
    runs = [plant(fix, 1e-3, s, int(rng.integers(300, 900))) for fix in ("softmax", "temperature") for s in range(8)]
    [found] = compare(runs)
    assert found.p_value > 0.05
    assert found.p_corrected == found.p_value
    assert found.verdict.startswith("no difference seen: ")


def test_a_slower_fix_is_called_later(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, 300 + s) for s in range(6)] + [plant("qk_norm", 1e-3, s, 900 + s) for s in range(6)]
    [found] = compare(runs)
    assert found.verdict.startswith("3.0× later")


def test_the_rate_is_chosen_on_one_half_of_the_seeds_and_judged_on_the_other(plant: Plant) -> None:
    """At 1e-2 the even seeds are fast and the odd ones are not: the flattery of choosing by the even ones must not show."""
    lucky = [plant("norm_softmax", 1e-2, s, 100 if s % 2 == 0 else 800) for s in range(8)]
    steady = [plant("norm_softmax", 1e-3, s, 400) for s in range(8)]
    base = [plant("softmax", lr, s, 800) for lr in (1e-2, 1e-3) for s in range(8)]
    [found] = compare(lucky + steady + base)
    # the even seeds choose 1e-2, where the odd ones wait 800; the odd ones choose 1e-3, where the even ones wait 400
    assert found.runs == 8
    assert found.mean_wait.value == pytest.approx((4 * 800 + 4 * 400) / 8)


def test_robustness_counts_rates_at_which_half_of_the_runs_leave(plant: Plant) -> None:
    runs = [plant("softmax", lr, s, 500 if lr == 1e-2 else None) for lr in (1e-4, 1e-3, 1e-2) for s in range(4)]
    runs += [plant("norm_softmax", lr, s, 500 if lr > 1e-4 or s < 2 else None) for lr in (1e-4, 1e-3, 1e-2) for s in range(4)]
    [found] = compare(runs)
    assert (found.working_rates, found.baseline_working_rates) == (3, 1)
    assert found.verdict.endswith("; works at 3 of 3 learning rates against 1 of 3")


def test_controls_are_arms_of_their_own_and_the_baseline_is_the_plain_one(plant: Plant) -> None:
    runs = [plant("softmax", 1e-3, s, None) for s in range(3)]
    runs += [plant("softmax", 1e-3, s, 400, qk_lr_scale=10.0) for s in range(3)]
    runs += [plant("norm_softmax", 1e-3, s, 400) for s in range(3)]
    found = compare(runs)
    assert {one.baseline.full_label for one in found} == {"softmax"}
    assert {one.arm.full_label for one in found} == {"softmax, training.qk_lr_scale=10.0", "norm_softmax"}


def test_without_a_baseline_there_is_nothing_to_compare(plant: Plant) -> None:
    assert compare([plant("norm_softmax", 1e-3, 0, 5), plant("temperature", 1e-3, 0, 5)]) == []
    assert compare([plant("softmax", 1e-3, 0, 5)]) == []


def test_the_rate_of_false_verdicts_holds_over_several_fixes(plant: Plant) -> None:
    """Four fixes that do nothing: at most one study in twenty says that any of them does."""
    fixes = ("softmax", "temperature", "norm_softmax", "qk_norm", "ssmax")
    runs = [plant(fix, 1e-3, s, 1) for fix in fixes for s in range(6)]
    rng, wrong, studies = np.random.default_rng(5), 0, 200
    for _ in range(studies):
        steps = np.maximum(1, np.minimum(1000, 600 * rng.weibull(2.0, len(runs)))).astype(int)
        outcomes = [replace(run.outcome, eureka_step=int(step)) for run, step in zip(runs, steps, strict=True) if run.outcome]
        dealt = [replace(run, outcome=outcome) for run, outcome in zip(runs, outcomes, strict=True)]
        wrong += any(one.p_corrected <= 0.05 for one in compare(dealt))
    assert wrong <= 19  # 0.05 · 200 and three standard deviations


def test_the_rate_of_false_verdicts_holds_over_several_learning_rates(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fix that does nothing, at rates as different as on tiles; halves that judge each other would err three times as often."""
    monkeypatch.setattr("eureka.study.comparison.speed_up", lambda *_, confidence: Estimate(1.0, None, None))
    shares = {1e-4: 0.15, 3e-4: 0.98, 1e-3: 0.65, 3e-3: 0.02, 1e-2: 0.3}
    medians = {1e-4: 1000, 3e-4: 650, 1e-3: 600, 3e-3: 500, 1e-2: 350}
    runs = [plant(fix, lr, s, 1) for fix in ("softmax", "qk_norm") for lr in shares for s in range(8)]
    rng, wrong, studies = np.random.default_rng(7), 0, 200
    for _ in range(studies):
        steps = [int(medians[run.config.lr] * rng.weibull(3.0)) + 1 for run in runs]
        leaps = [step <= 1000 and rng.random() < shares[run.config.lr] for run, step in zip(runs, steps, strict=True)]
        outcomes = [
            replace(run.outcome, eureka_step=step if leapt else None)
            for run, step, leapt in zip(runs, steps, leaps, strict=True)
            if run.outcome
        ]
        [found] = compare([replace(run, outcome=outcome) for run, outcome in zip(runs, outcomes, strict=True)])
        wrong += found.p_corrected <= 0.05
    assert wrong <= 19  # 0.05 · 200 and three standard deviations


def test_the_smallest_p_value_is_that_of_one_dealing_in_all() -> None:
    assert smallest_p(3, 3) == pytest.approx(0.1)
    assert smallest_p(5, 5) == pytest.approx(2 / 252)


def test_an_arm_none_of_whose_runs_has_ended_is_not_compared(plant: Plant) -> None:
    waiting = replace(plant("norm_softmax", 1e-3, 0, 5), outcome=None)
    assert compare([plant("softmax", 1e-3, 0, 5), waiting]) == []


def test_a_comparison_is_a_document_that_names_fix_baseline_and_condition(plant: Plant) -> None:
    runs = [plant(fix, 1e-3, s, 500, batch_size=size) for fix in ("softmax", "qk_norm") for s in (0, 1) for size in (64, 256)]
    document = compare(runs)[0].to_json()
    assert list(document)[:3] == ["fix", "baseline", "best_lr"]
    assert (document["fix"], document["baseline"], document["setting"]) == ("qk_norm", "softmax", {"training.batch_size": 64})
    assert document["median_step"] == {"value": 500.0, "low": 500.0, "high": None}
    json.dumps(document, allow_nan=False)


def test_holm_never_lowers_a_p_value_and_keeps_their_order() -> None:
    rng = np.random.default_rng(4)
    for _ in range(50):
        p = rng.random(5).tolist()
        corrected = holm(p)
        assert all(c >= v for c, v in zip(corrected, p, strict=True))
        assert [c for _, c in sorted(zip(p, corrected, strict=True))] == sorted(corrected)


def test_every_start_is_an_arm_and_softmax_from_the_papers_start_is_the_baseline(make_run: Callable[..., Run]) -> None:
    runs = [
        make_run({"attention.name": fix, "model.start": start, "training.seed": s}, step + s)
        for fix, start, step in [
            ("softmax", "clear_positions", 300),
            ("softmax", "paper", 900),
            ("norm_softmax", "paper", 500),
            ("norm_softmax", "clear_positions", 200),
            ("softmax", "clear", 250),
        ]
        for s in range(4)
    ]
    found = {one.arm.label: one for one in compare(runs) if one.baseline.label == "softmax"}
    assert list(found) == [
        "softmax (start=clear)",
        "softmax (start=clear_positions)",
        "norm_softmax",
        "norm_softmax (start=clear_positions)",
    ]
    assert found["norm_softmax (start=clear_positions)"].speed_up.value == pytest.approx(901.5 / 201.5)


def test_softmax_as_it_is_stays_the_baseline_where_more_arms_start_otherwise(make_run: Callable[..., Run]) -> None:
    arms = {("softmax", "paper"): 900, ("softmax", "clear_positions"): 300, ("norm_softmax", "clear_positions"): 200}
    runs = [
        make_run({"attention.name": fix, "model.start": start, "training.seed": s}, step + s)
        for (fix, start), step in arms.items()
        for s in range(4)
    ]
    assert {one.arm.label for one in compare(runs) if one.baseline.label == "softmax"} == {
        "softmax (start=clear_positions)",
        "norm_softmax (start=clear_positions)",
    }


def test_a_fix_is_compared_with_the_baseline_that_starts_as_it_does_too(make_run: Callable[..., Run]) -> None:
    runs = [
        make_run({"attention.name": fix, "model.start": start, "training.seed": s}, step + s)
        for (fix, start), step in {
            ("softmax", "paper"): 900,
            ("norm_softmax", "paper"): 600,
            ("softmax", "clear_positions"): 300,
            ("norm_softmax", "clear_positions"): 200,
        }.items()
        for s in range(4)
    ]
    pairs = [(one.baseline.label, one.arm.label) for one in compare(runs)]
    assert pairs == [
        ("softmax", "softmax (start=clear_positions)"),
        ("softmax", "norm_softmax"),
        ("softmax", "norm_softmax (start=clear_positions)"),
        ("softmax (start=clear_positions)", "norm_softmax (start=clear_positions)"),
    ]
