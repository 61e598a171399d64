"""Where a study stands follows from its runs: which looks were taken, what they decided, and which runs the next one needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from eureka.errors import RequestError
from eureka.runs import Run
from eureka.study.durations import START_SECONDS, WORKER_SECONDS, expected_seconds
from eureka.study.rounds import Standing, compare_at_looks, over_rates_at_looks, stand
from eureka.study.sequential import SEEDS
from eureka.study.survival import Times, log_rank

Steps = Callable[[int], int | None]
"""The Eureka-step of each seed."""
Runs = Callable[[Mapping[tuple[str, float], Steps]], list[Run]]


def never(seed: int) -> int | None:
    return None


def early(seed: int) -> int | None:
    return 200 + 10 * seed


def late(seed: int) -> int | None:
    return 700 + 10 * seed


@pytest.fixture
def all_runs(make_run: Callable[..., Run]) -> Runs:
    """Every run that a study may need, all of them ended."""

    def make(cells: Mapping[tuple[str, float], Steps]) -> list[Run]:
        return [
            make_run({"attention.name": fix, "training.lr": lr, "training.seed": seed}, steps(seed))
            for (fix, lr), steps in cells.items()
            for seed in range(SEEDS[-1])
        ]

    return make


def begun(runs: list[Run], seeds: int) -> list[Run]:
    """The same study when only the first seeds have ended."""
    return [run if run.config.seed < seeds else replace(run, outcome=None) for run in runs]


def wanted(standing: Standing) -> set[tuple[str, float, int]]:
    return {(run.config.fix, run.config.lr, run.config.seed) for run in standing.missing}


def test_before_the_first_look_every_arm_needs_the_same_seeds(all_runs: Runs) -> None:
    runs = all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): early})
    standing = stand(begun(runs, 4))
    assert (standing.round, standing.next_look) == (1, standing.plan[0])
    assert wanted(standing) == {(fix, 1e-3, seed) for fix in ("softmax", "norm_softmax") for seed in (4, 5)}
    [found] = compare_at_looks(standing)
    assert found.verdict == "not decided yet: 4.7× sooner so far; the next look is after 6 seeds"


def test_a_clear_difference_is_decided_at_the_first_look_and_needs_no_more(all_runs: Runs) -> None:
    standing = stand(begun(all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): early}), 6))
    assert (standing.next_look, standing.missing, len(standing.needed)) == (None, [], 12)
    [found] = compare_at_looks(standing)
    assert found.verdict.startswith("4.4× sooner")
    assert found.verdict.endswith("p = 0.017, n = 6; decided after 6 seeds")  # 2 / 924, a share of 1/8
    assert found.p_value == found.p_corrected == pytest.approx(2 / 924 / 0.125)


def test_runs_beyond_a_decision_change_nothing(all_runs: Runs) -> None:
    """However many runs there are when it is asked again, the looks are the same."""
    runs = all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): lambda seed: 300 if seed < 6 else None})
    first, again = stand(begun(runs, 6)), stand(runs)
    assert first.to_json() == again.to_json()
    assert [one.verdict for one in compare_at_looks(first)] == [one.verdict for one in compare_at_looks(again)]


def test_seeds_go_to_what_is_undecided_and_to_rates_that_are_not_beaten(all_runs: Runs) -> None:
    mixed: Steps = lambda seed: 300 + 37 * (seed * 7 % 11)  # noqa: E731
    runs = all_runs(
        {
            ("softmax", 1e-3): mixed,
            ("softmax", 1e-4): never,
            ("norm_softmax", 1e-3): lambda seed: 100 + seed,
            ("norm_softmax", 1e-4): never,
            ("qk_norm", 1e-3): lambda seed: mixed(seed + 3),
            ("qk_norm", 1e-4): never,
        }
    )
    standing = stand(begun(runs, 9))
    assert standing.names_of_undecided() == ["qk_norm"]
    assert wanted(standing) == {(fix, 1e-3, seed) for fix in ("softmax", "qk_norm") for seed in range(9, 14)}
    decided = {one["fix"]: (one["outcome"], one["beaten_rates"]) for one in standing.to_json()["decisions"]}
    assert decided == {"norm_softmax": ("sooner", [1e-4]), "qk_norm": (None, [1e-4])}
    assert len(standing.until_last_look()) == 2 * (30 - 9)


def test_over_all_rates_only_seeds_count_that_every_rate_has(all_runs: Runs) -> None:
    cells = {("softmax", 1e-3): late, ("softmax", 1e-4): never, ("qk_norm", 1e-3): late, ("qk_norm", 1e-4): never}
    standing = stand(all_runs(cells))
    assert len(standing.needed) > 2 * 2 * standing.plan[0].seeds
    assert [one.runs for one in over_rates_at_looks(standing)] == [2 * standing.plan[0].seeds] * 2


def test_a_slower_fix_is_later_and_the_best_rates_are_compared_wherever_they_are(all_runs: Runs) -> None:
    cells = {("softmax", 1e-3): early, ("softmax", 1e-4): never, ("qk_norm", 1e-3): never, ("qk_norm", 1e-4): late}
    [found] = compare_at_looks(stand(all_runs(cells)))
    assert (found.baseline_best_lr, found.best_lr) == (1e-3, 1e-4)
    assert "later" in found.verdict


def test_what_can_hardly_be_decided_is_given_up_and_says_so(all_runs: Runs) -> None:
    standing = stand(all_runs({("softmax", 1e-3): never, ("qk_norm", 1e-3): never}))
    [found] = compare_at_looks(standing)
    assert found.verdict.endswith("given up, as a verdict had become unlikely, after 14 seeds")
    assert found.verdict.startswith("no difference seen: neither sooner nor later")
    assert len(standing.needed) == 2 * 14


def test_at_the_most_seeds_it_ends_and_more_go_on_with_the_same_looks(all_runs: Runs) -> None:
    runs = all_runs({("softmax", 1e-3): late, ("qk_norm", 1e-3): lambda seed: late(seed) if seed % 3 else 400})
    short, longer = stand(begun(runs, 9), most=9), stand(begun(runs, 9), most=30)
    assert compare_at_looks(short)[0].verdict.endswith("; the last look was after 9 seeds")
    assert short.plan == longer.plan[:2]
    assert longer.next_look == longer.plan[2]


def test_every_document_is_json(all_runs: Runs) -> None:
    for seeds in (0, 6, 30):
        standing = stand(begun(all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): early}), seeds))
        json.dumps([standing.to_json(), [one.to_json() for one in compare_at_looks(standing)]], allow_nan=False)


def test_without_rivals_or_with_too_few_seeds_it_is_refused(all_runs: Runs) -> None:
    with pytest.raises(RequestError, match="nothing to decide"):
        stand(all_runs({("norm_softmax", 1e-3): early}))
    runs = all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): early})
    for most in (3, 31):
        with pytest.raises(RequestError, match=f"--seeds {most}: --until-sure looks after 6, 9, 14, 20 and 30 seeds"):
            stand(runs, most)


def test_the_time_is_that_of_the_cells_own_runs_spread_over_the_workers(all_runs: Runs) -> None:
    runs = all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): early})
    taking = [
        replace(run, outcome=replace(run.outcome, seconds=20.0 if run.config.fix == "softmax" else 8.0))
        for run in runs
        if run.outcome
    ]
    missing = stand(begun(taking, 5)).missing
    assert expected_seconds(missing, taking, 1) == pytest.approx(28 + 2 * START_SECONDS + WORKER_SECONDS)
    assert expected_seconds(missing, taking, 2) == pytest.approx(20 + START_SECONDS + WORKER_SECONDS)
    assert expected_seconds(missing, begun(taking, 0), 2) is None


def test_a_decision_that_the_mean_wait_contradicts_later_is_not_clear(all_runs: Runs) -> None:
    """Holm's correction lets the p-value of the first look through at the second, when another arm is decided."""
    first = [400, 401, 402, 403, 404, 505]
    cells: dict[tuple[str, float], Steps] = {
        ("softmax", 1e-3): lambda seed: 500 + 10 * seed if seed < 6 else 450,
        ("qk_norm", 1e-3): lambda seed: first[seed] if seed < 6 else None,
        ("norm_softmax", 1e-3): lambda seed: first[seed] if seed < 6 else 100,
    }
    told = {one.arm.label: one for one in compare_at_looks(stand(all_runs(cells)))}
    assert told["norm_softmax"].standing == "sooner"
    assert told["qk_norm"].standing == "unclear"
    assert told["qk_norm"].verdict.startswith("not clear, most runs say the opposite: 1.2× later")
    assert told["qk_norm"].verdict.endswith("the last look was after 9 seeds")


def test_arms_whose_order_and_mean_disagree_to_the_end_are_not_called_alike(all_runs: Runs) -> None:
    gamble: Steps = lambda seed: 120 + seed if seed % 14 else None  # noqa: E731
    runs = all_runs({("softmax", 1e-3): lambda seed: 170 + seed, ("qk_norm", 1e-3): gamble})
    standing = stand(runs)
    [found] = compare_at_looks(standing)
    assert standing.to_json()["decisions"][0]["rule"] == "last look"  # not given up as too much alike
    assert found.standing == "unclear"
    last = standing.plan[-1]
    waits = [np.array([120.0 + seed if seed % 14 else 1200.0 for seed in range(last.seeds)]), 170.0 + np.arange(last.seeds)]
    alone = log_rank(*(Times(steps, steps < 1200) for steps in waits))
    assert found.p_value == pytest.approx(alone / last.share, rel=0.2)  # one rate against one; both are drawn
    assert found.p_corrected == found.p_value <= 0.05
    assert "later" in found.verdict


def test_no_p_value_holds_before_the_first_look(all_runs: Runs) -> None:
    runs = all_runs({("softmax", 1e-3): never, ("norm_softmax", 1e-3): early})
    [found] = compare_at_looks(stand(begun(runs, 5)))
    assert (found.standing, found.p_value, found.p_corrected) == ("open", 1.0, 1.0)


def test_the_p_value_of_an_arm_that_was_given_up_stays_as_it_was_when_others_are_decided(all_runs: Runs) -> None:
    """Its own first look would be significant by Holm's correction once the other arm is."""
    cells: dict[tuple[str, float], Steps] = {
        ("softmax", 1e-3): lambda seed: 500 + 10 * seed,
        ("qk_norm", 1e-3): lambda seed: [400, 401, 402, 403, 404, 505][seed] if seed < 6 else seed + (800 if seed < 9 else 545),
        ("norm_softmax", 1e-3): lambda seed: (460 if seed < 14 else 300) + 10 * seed,
    }
    runs = all_runs(cells)
    at_14 = {one.arm.label: one for one in compare_at_looks(stand(begun(runs, 14)))}["qk_norm"]
    at_end = {one.arm.label: one for one in compare_at_looks(stand(runs))}
    assert at_14.verdict.endswith("given up, as a verdict had become unlikely, after 14 seeds")
    assert at_end["norm_softmax"].standing == "sooner"
    assert at_end["qk_norm"].verdict == at_14.verdict
    assert at_end["qk_norm"].p_corrected == at_14.p_corrected > 0.05
