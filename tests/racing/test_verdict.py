"""Verdicts: differences in pairs, intervals that hold together, and what is called help."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.signal import lfilter

from eureka.racing.rungs import expected, rungs, stay, total
from eureka.racing.verdict import Verdict, alone, difference, far_ahead, gain, has_leapt, in_words, judge, learned, winner


def judged(losses: Any, wait: Any, *, remedies: int = 1, leapt: int | None = None, skipped: str = "") -> Verdict:
    return judge("it", "something", list(losses), list(wait), remedies=remedies, leapt=leapt, skipped=skipped)


def noise(steps: int, seed: int, size: float = 0.01, alike: float = 0.0) -> Any:
    drawn = np.random.default_rng(seed).normal(size=steps)
    return size * math.sqrt(1 - alike**2) * lfilter([1.0], [1.0, -alike], drawn)


def slow_difference(losses: list[float], wait: list[float]) -> tuple[float, float, float]:
    """Mean, its error and the growth, written out: a line, its residuals, the means of their blocks."""
    both = min(len(losses), len(wait))
    count = min(both, max(round(0.25 * both), 20))
    pairs = [wait[step] - losses[step] for step in range(both - count, both)]
    mean = sum(pairs) / count
    middle = (count - 1) / 2
    slope = sum((i - middle) * pair for i, pair in enumerate(pairs)) / sum((i - middle) ** 2 for i in range(count))
    rest = [pair - mean - slope * (i - middle) for i, pair in enumerate(pairs)]
    length = max(round(count**0.4), 2)
    blocks = [sum(rest[i : i + length]) / length for i in range(count % length, count, length)]
    centre = sum(blocks) / len(blocks)
    variance = sum((block - centre) ** 2 for block in blocks) / (len(blocks) - 2)
    return mean, math.sqrt(variance / len(blocks)), slope * count


@pytest.mark.parametrize(("ours", "theirs"), [(100, 100), (40, 160), (160, 40), (12, 12)])
def test_the_difference_has_a_slow_twin(ours: int, theirs: int) -> None:
    losses = list(1.0 - np.linspace(0, 0.3, ours) + noise(ours, 1, alike=0.6))
    wait = list(1.0 + noise(theirs, 2))
    found = difference(losses, wait)
    mean, error, growth = slow_difference(losses, wait)
    assert found.mean == pytest.approx(mean)
    assert found.error == pytest.approx(error, rel=1e-9)
    assert found.growth == pytest.approx(growth)


@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_all_intervals_hold_together_in_about_95_percent_of_races(alike: float) -> None:
    """Eight remedies that change nothing but the noise, whose neighbours err alike."""
    missed = 0
    for race in range(200):
        wait = 1.0 + noise(320, 1000 * race)
        intervals = [
            difference(list(1.0 + noise(320, 1000 * race + i, alike=alike)), list(wait)).interval(8) for i in range(1, 9)
        ]
        missed += any(low > 0 or high < 0 for low, high in intervals)
    assert missed <= 20  # 5 %, and what 200 races leave open


def test_more_remedies_make_wider_intervals() -> None:
    found = difference(list(noise(80, 1)), list(noise(80, 2)))
    low, high = found.interval(1)
    lower, higher = found.interval(16)
    assert lower < low < high < higher


def test_a_loss_that_is_lower_and_gains_is_help() -> None:
    wait = 1.0 + noise(160, 1)
    verdict = judged(1.0 - np.linspace(0, 0.08, 160) + noise(160, 2), wait)
    assert verdict.standing == "helped"
    assert verdict.low is not None
    assert verdict.low > 0.02


def test_a_loss_that_is_lower_at_once_and_then_no_more_is_not_help() -> None:
    verdict = judged(0.96 + noise(160, 2), 1.0 + noise(160, 1))
    assert verdict.standing == "level"
    assert verdict.why == "it is lower, but no longer gains on waiting."


def test_less_than_waiting_gains_twice_is_not_help() -> None:
    wait = 1.0 - np.linspace(0, 0.1, 160) + noise(160, 1, 0.002)
    verdict = judged(wait - np.linspace(0, 0.12, 160), wait)
    assert verdict.standing == "level"
    assert "waiting gains" in verdict.why


@pytest.mark.parametrize(("by", "standing"), [(-0.01, "level"), (-0.05, "worse"), (0.01, "level")])
def test_small_differences_are_level_and_large_ones_worse(by: float, standing: str) -> None:
    assert judged(1.0 - by + noise(160, 2, 0.002), 1.0 + noise(160, 1, 0.002)).standing == standing


def test_what_is_no_number_has_diverged() -> None:
    verdict = judged([1.0] * 20 + [math.nan], [1.0] * 40)
    assert (verdict.standing, verdict.steps, verdict.difference) == ("diverged", 21, None)


def test_a_leap_is_far_below_waiting_and_clear() -> None:
    wait = 1.0 + noise(100, 1)
    assert not has_leapt(list(wait[:9] * 0.5), list(wait))
    assert has_leapt(list(wait[:10] * 0.8), list(wait))
    assert not has_leapt(list(wait * 0.95), list(wait))
    assert not has_leapt(list(1.0 + noise(100, 2, 0.5)), list(1.0 + noise(100, 3, 0.5)))
    falling = np.linspace(2.0, 0.5, 100)
    assert not has_leapt(list(falling * 0.85), list(falling))


@pytest.mark.parametrize(("size", "alike"), [(0.1, 0.5), (0.3, 0.0)])
def test_noise_seldom_looks_like_a_leap_though_a_race_looks_at_every_step(size: float, alike: float) -> None:
    """Eight forks on a plateau, none of them better, and losses as noisy as those of very small batches."""
    leapt = 0
    for race in range(25):
        wait, *forks = (list(1.0 + noise(160, 100 * race + fork, size, alike)) for fork in range(9))
        leapt += any(has_leapt(fork[:step], wait) for fork in forks for step in range(10, 160, 3))
    assert leapt <= 2


def test_a_leap_is_seen_in_pairs_where_batches_differ_much() -> None:
    batches = 1.0 + noise(80, 1, 0.4)
    assert not has_leapt(list(0.7 * batches[:19]), list(batches))
    assert has_leapt(list(0.7 * batches[:20]), list(batches))


def test_a_spike_of_waiting_is_no_leap_of_the_others() -> None:
    wait = 1.0 + noise(80, 1)
    wait[30:40] += 1.0
    assert not has_leapt(list(1.0 + noise(40, 2)), list(wait))
    assert has_leapt(list(0.5 + noise(80, 2)), list(wait))


def test_learning_is_a_fast_and_clear_fall() -> None:
    assert learned(list(np.exp(-np.arange(60) / 40))) > 0.3
    assert learned(list(np.linspace(1.0, 0.95, 60))) == 0.0
    assert learned(list(1.0 + noise(60, 1, 0.5))) == 0.0
    assert learned([1.0, 0.5]) == 0.0
    assert gain([1.0, 2.0, 3.0]) == 0.0


def test_a_run_that_falls_to_the_end_of_the_race_learns_alone() -> None:
    steps = np.arange(80)
    assert alone(list(1.2 - 0.003 * steps + noise(80, 1))) == pytest.approx(0.18, abs=0.02)
    assert alone(list(np.exp(-steps / 20))) > 0.9
    assert alone(list(1.0 + np.exp(-steps / 5))) == 0.0  # it settles on a plateau
    assert alone(list(1.0 + noise(80, 1, 0.3))) == 0.0
    assert alone(list(1.2 - 0.001 * steps)) == 0.0
    assert alone([1.0, 0.5]) == 0.0


def test_of_a_run_that_learns_by_itself_no_plateau_is_said_to_be_left() -> None:
    wait = list(1.2 - 0.003 * np.arange(80) + noise(80, 1))
    assert learned(wait) == 0.0
    faster = judged(1.2 - 0.03 * np.arange(14), wait, leapt=14)
    assert (faster.standing, faster.leapt, faster.cells()[-1]) == ("helped", None, "helped")
    told = in_words([faster], wait)
    assert told.startswith(
        "The run learns by itself: its loss fell by 18\N{NO-BREAK SPACE}% in 80 steps. it learns faster: after 14"
    )
    assert "plateau" not in told
    assert winner([faster]) is faster


def test_who_was_given_up_is_not_said_to_have_helped() -> None:
    wait, losses = list(1.0 + noise(160, 1)), list(1.0 - np.linspace(0, 0.08, 80))
    assert judged(losses, wait).helped
    gone = judge("it", "something", losses, wait, remedies=1, leapt=None, skipped="", given_up=True)
    assert gone.standing == "level"
    assert gone.why == "it was lower and gained when it made room for others at step 80: race it alone."


def test_the_winner_is_who_leapt_or_whose_interval_begins_highest() -> None:
    wait = list(1.0 + noise(160, 1))
    slow = judged(1.0 - np.linspace(0, 0.08, 160), wait)
    fast = judged(1.0 - np.linspace(0, 0.09, 160), wait)
    leapt = judged(wait, wait, leapt=20)
    assert winner([slow, fast]) is fast
    assert winner([slow, leapt, fast]) is leapt
    assert winner([judged(wait, wait)]) is None
    assert in_words([judged(wait, wait)], wait) == "None of them helped: no remedy has a loss below that of waiting."
    assert in_words([judged(wait, wait, skipped="no.")], wait) == "None of the remedies could be applied."
    assert in_words([fast], wait).startswith("it helped: its loss is 8")


def test_where_none_helped_it_says_by_what_the_best_missed_it() -> None:
    wait = 1.0 + noise(160, 1, 0.002)
    small = judged(wait - 0.01 + noise(160, 2, 0.001), wait)
    unclear = judged(wait - 0.03 + noise(160, 3, 0.3), wait)
    done = judged(wait - np.linspace(0.06, 0.05, 160), wait)
    gaining = judged(wait - 0.04 - np.linspace(0, 0.001, 160) + noise(160, 5, 0.002), wait)
    verdicts = [small, unclear, done, gaining]
    assert [one.standing for one in verdicts] == ["level"] * 4
    told = [in_words([one], list(wait)).removeprefix("None of them helped: the best is it, at ") for one in verdicts]
    assert told[0] == "+1.0 %, and less than 2\N{NO-BREAK SPACE}% does not count."
    assert told[1].startswith(f"{verdicts[1].cells()[2]}, and its interval ({verdicts[1].cells()[3]}) holds 0")
    assert told[2] == "+5.1 %; it is lower, but no longer gains on waiting."
    assert told[3] == "+4.1 %; it is lower, but that it still gains on waiting is not clear: a longer race may tell."
    assert "at +5.1 %" in in_words(verdicts, list(wait))  # the one that missed it by least


def test_far_ahead_is_a_whole_interval_a_leap_below_waiting() -> None:
    wait = list(1.0 + noise(160, 1))
    assert far_ahead(judged(1.0 - np.linspace(0, 0.3, 160), wait))
    assert not far_ahead(judged(1.0 - np.linspace(0, 0.08, 160), wait))
    assert not far_ahead(judged(0.7 + noise(160, 2), wait))  # it no longer gains
    assert not far_ahead(judged(wait, wait, skipped="no."))


def test_rungs_cost_what_they_say() -> None:
    assert total(rungs(7, 480)) == 8 * 80 + 5 * 80 + 4 * 160 + 4 * 160
    assert [rung.until for rung in rungs(3, 200)] == [80, 160, 200]
    assert rungs(1, 10)[0].until == 10
    assert [rung.remedies for rung in rungs(1, 320)] == [1, 1, 1]
    assert rungs(0, 80)[-1].remedies == 0


def stays(losses: list[list[float]], count: int, wait: list[float] | None = None) -> list[int]:
    wait = [1.0] * 40 if wait is None else wait
    return stay([expected(one, wait) for one in losses], count)


def test_a_loss_that_is_higher_and_falls_towards_waiting_stays() -> None:
    falls = list(3.0 - 0.04 * np.arange(40.0))
    assert stays([[1.0] * 40, falls, [1.5] * 40], 3) == [0, 1]


def test_who_would_stay_clearly_above_waiting_is_given_up_even_if_there_is_room() -> None:
    wait = list(1.0 + noise(80, 1))
    above = [list(1.1 + noise(80, seed)) for seed in (2, 3)]
    assert stays([*above, wait], 3, wait) == [2]


def test_noise_does_not_give_up_a_fork_that_is_level() -> None:
    wait = list(1.0 + noise(80, 1, 0.1))
    kept = [stays([list(1.0 + noise(80, seed, 0.1))], 1, wait) for seed in range(2, 102)]
    assert sum(one == [0] for one in kept) >= 95


def test_of_those_that_are_level_the_first_stay_behind_those_who_lead() -> None:
    assert stays([[1.0] * 40] * 5, 3) == [0, 1, 2]
    assert stays([[1.0] * 40] * 4 + [[0.9] * 40], 3) == [0, 1, 4]


def test_a_calmer_fork_does_not_lead() -> None:
    assert expected([0.9] * 40, [1.0] * 40).lead > 0.05
    assert expected([0.9] * 40, [1.0] * 40, calms=True).lead == 0.0


def test_a_new_start_is_not_given_up_for_its_loss() -> None:
    assert expected([2.0] * 40, [1.0] * 40).hopeless
    assert not expected([2.0] * 40, [1.0] * 40, restarts=True).hopeless
    assert expected([2.0] * 40, [1.0] * 40, restarts=True).lead == 0.0


def test_before_the_first_step_nobody_leads_and_nobody_is_hopeless() -> None:
    nothing = expected([], [1.0])
    assert nothing.lead == 0.0
    assert not nothing.hopeless
