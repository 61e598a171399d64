"""The sequential test against a slow twin, and in thousands of simulated studies: how often it errs, and how soon it ends.

The studies are simulated all at once: waits like ours (a share of runs leaps, at steps of a Weibull law, validated every 25
steps, watched for 1,200), the p-values of all studies by one matrix product per look, the decisions by the code under test.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from eureka.study.comparison import LEVEL
from eureka.study.dealings import Bools, Floats
from eureka.study.sequential import SEEDS, Contest, Decision, Look, PairTests, compare_pairs, looks, take_look
from eureka.study.survival import Times, log_rank, log_rank_scores, log_rank_sides

HORIZON = 1200.0
DEALINGS = 4000
"""Fewer than in earnest: a p-value by permutation is valid with any number."""

Cell = tuple[float, float]
"""the share of runs that leap at a learning rate, and the median step of those"""
Arm = list[Cell]


def draw(
    rng: np.random.Generator, studies: int, arm: Arm, likeness: float = 0.0, luck: Floats | None = None
) -> tuple[Floats, Bools]:
    """The waits of an arm, (studies, rates, seeds); with `luck`, that of each seed is shared by all that get the same."""
    shape = (studies, len(arm), SEEDS[-1])
    shares, medians = np.array(arm).T[:, None, :, None]
    steps = np.ceil(medians * rng.weibull(3.0, shape) / math.log(2) ** (1 / 3) / 25) * 25
    chance = rng.random(shape) if luck is None else np.where(rng.random(shape) < likeness, luck[:, None], rng.random(shape))
    observed = (chance < shares) & (steps <= HORIZON)
    return np.where(observed, steps, HORIZON), observed


@cache
def dealt(n: int) -> tuple[NDArray[np.float32], bool]:
    """For every dealing, who is in the first group; and whether these are all dealings."""
    if math.comb(2 * n, n) <= DEALINGS:
        chosen = np.array(list(itertools.combinations(range(2 * n), n)))
    else:
        chosen = np.argsort(np.random.default_rng(n).random((DEALINGS, 2 * n)), axis=1)[:, :n]
    groups = np.zeros((len(chosen), 2 * n), dtype=np.float32)
    np.put_along_axis(groups, chosen, 1, axis=1)
    return groups, math.comb(2 * n, n) <= DEALINGS


def many_sides(a: Floats, a_seen: Bools, b: Floats, b_seen: Bools) -> tuple[Floats, Floats]:
    """`log_rank_sides` of many studies at once, (studies, seeds) each."""
    n = a.shape[1]
    steps, seen = np.concatenate([a, b], axis=1), np.concatenate([a_seen, b_seen], axis=1)
    waiting = (steps[:, None, :] >= steps[:, :, None]).sum(axis=2)
    hazard = np.where(seen, 1 / waiting, 0.0)
    scores = (seen - ((steps[:, None, :] <= steps[:, :, None]) * hazard[:, None, :]).sum(axis=2)).astype(np.float32)
    groups, exact = dealt(n)
    found, sums = scores[:, :n].sum(axis=1, keepdims=True), scores @ groups.T
    extra = 0 if exact else 1
    sooner = ((sums >= found - 1e-4).sum(axis=1) + extra) / (len(groups) + extra)
    later = ((sums <= found + 1e-4).sum(axis=1) + extra) / (len(groups) + extra)
    return sooner, later


@dataclass
class Tally:
    """What became of many studies."""

    decisions: list[list[Decision | None]]
    runs: Floats

    def claims(self) -> float:
        """The share of studies that claim any difference."""
        return float(np.mean([any(one and one.outcome != "none seen" for one in study) for study in self.decisions]))

    def share(self, outcome: str) -> float:
        return float(np.mean([one is not None and one.outcome == outcome for study in self.decisions for one in study]))


def simulate(studies: int, baseline: Arm, arms: list[Arm], *, seed: int = 0, likeness: float = 0.0) -> Tally:
    """Studies of several arms against one baseline. A pair of rates is compared in all studies at once if in any."""
    rng = np.random.default_rng(seed)
    luck = rng.random((studies, SEEDS[-1])) if likeness else None
    drawn = [draw(rng, studies, arm, likeness, luck) for arm in (baseline, *arms)]
    contests = [[Contest.between(len(arm), len(baseline)) for arm in arms] for _ in range(studies)]
    plan = looks(len(arms) * contests[0][0].tests)
    used = np.zeros((studies, 1 + len(arms), len(baseline)))
    for look in plan:
        undecided = np.array([[contest.decision is None for contest in study] for study in contests])
        contesting = np.array([[contest.unbeaten(len(arms)) for contest in study] for study in contests]) & undecided[..., None]
        for i, arm in enumerate(arms):
            used[:, 1 + i] = np.where(contesting[:, i, : len(arm)], look.seeds, used[:, 1 + i])
            used[:, 0] = np.where(contesting[:, i, len(arm) :], look.seeds, used[:, 0])
        p = [all_pairs(drawn[1 + i], drawn[0], contesting[:, i], look.seeds) for i in range(len(arms))]
        for s in range(studies):
            given = [PairTests(p[i].by_order[s], p[i].by_both[s]) if undecided[s, i] else None for i in range(len(arms))]
            contests[s] = take_look(contests[s], given, look, last=look is plan[-1])
    return Tally([[contest.decision for contest in study] for study in contests], used.sum(axis=(1, 2)))


def all_pairs(arm: tuple[Floats, Bools], base: tuple[Floats, Bools], contesting: Bools, seeds: int) -> PairTests:
    steps, seen = (np.concatenate([mine, theirs], axis=1)[:, :, :seeds] for mine, theirs in zip(arm, base, strict=True))
    rates = steps.shape[1]
    p = np.full((len(steps), rates, rates), np.nan)
    for i, j in itertools.combinations(range(rates), 2):
        both = np.flatnonzero(contesting[:, i] & contesting[:, j])
        if len(both):
            p[both, i, j], p[both, j, i] = many_sides(steps[both, i], seen[both, i], steps[both, j], seen[both, j])
    waits = steps.mean(axis=2)
    agrees = waits[:, :, None] < waits[:, None, :]
    return PairTests(p, np.where(agrees | np.isnan(p), p, 1.0))


def at_most(rate: float, studies: int) -> float:
    """A rate and three standard deviations."""
    return rate + 3 * math.sqrt(rate * (1 - rate) / studies)


def test_the_p_values_of_many_studies_at_once_are_those_of_the_test() -> None:
    rng = np.random.default_rng(3)
    a, b = draw(rng, 20, [(0.7, 500)]), draw(rng, 20, [(0.9, 400)])
    for n, tolerance in ((6, 1e-9), (14, 0.03)):
        sooner, later = many_sides(a[0][:, 0, :n], a[1][:, 0, :n], b[0][:, 0, :n], b[1][:, 0, :n])
        for s in range(20):
            mine, theirs = Times(a[0][s, 0, :n], a[1][s, 0, :n]), Times(b[0][s, 0, :n], b[1][s, 0, :n])
            p = compare_pairs([mine, theirs]).by_order
            assert (p[0, 1], p[1, 0]) == (pytest.approx(sooner[s], abs=tolerance), pytest.approx(later[s], abs=tolerance))


def test_a_rate_beats_another_only_if_its_mean_wait_is_shorter_too() -> None:
    most, sure = np.array([*range(100, 113), 1200.0]), np.arange(170.0, 184.0)
    gamble, steady = Times(most, most < 1200), Times(sure, sure > 0)
    found = compare_pairs([gamble, None, steady])
    assert (found.by_order[2, 0], found.by_order[0, 2]) == log_rank_sides(steady, gamble)
    assert found.by_order[0, 2] < 0.01
    assert (found.by_both[0, 2], found.by_both[2, 0]) == (1.0, found.by_order[2, 0])
    assert np.isnan(found.by_both[1]).all()
    assert np.isnan(found.by_both[:, 1]).all()


def test_a_side_is_the_share_of_dealings_that_go_as_far_and_both_sides_make_the_two_sided_test() -> None:
    rng = np.random.default_rng(5)
    for _ in range(30):
        n, m = rng.integers(2, 6, 2)
        a, b = (Times(100.0 * rng.integers(1, 8, size), rng.random(size) < 0.7) for size in (n, m))
        scores = log_rank_scores(np.concatenate([a.steps, b.steps]), np.concatenate([a.observed, b.observed]))
        sums = [sum(scores[list(group)]) for group in itertools.combinations(range(n + m), n)]
        sooner, later = log_rank_sides(a, b)
        assert sooner == pytest.approx(np.mean([one >= sums[0] - 1e-9 for one in sums]))
        assert later == pytest.approx(np.mean([one <= sums[0] + 1e-9 for one in sums]))
        if n == m:
            assert log_rank(a, b) == pytest.approx(min(1.0, 2 * min(sooner, later)))


def test_the_shares_of_the_looks_add_up_to_the_level_and_every_look_can_decide() -> None:
    for tests in (1, 2, 3, 9, 54, 99, 300):
        plan = looks(tests)
        assert sum(look.share for look in plan) == pytest.approx(1.0)
        assert [look.seeds for look in plan] == list(SEEDS[-len(plan) :])
        everyone = Times(np.arange(1.0, 31.0), np.ones(30, dtype=bool)), Times(np.full(30, HORIZON), np.zeros(30, dtype=bool))
        for look in plan:
            fast, slow = (times.take(np.arange(look.seeds)) for times in everyone)
            assert 2 * tests * log_rank_sides(fast, slow)[0] <= LEVEL * look.share
    assert looks(10_000) == ()


BAD, GOOD, FAIR = (0.05, 700.0), (0.9, 400.0), (0.6, 500.0)
NULLS: dict[str, tuple[Arm, list[Arm]]] = {
    "one rate": ([FAIR], [[FAIR]]),
    "one rate, all leap": ([(1.0, 400.0)], [[(1.0, 400.0)]]),
    "four arms": ([FAIR], [[FAIR]] * 4),
    "two rates, two arms": ([GOOD, FAIR], [[GOOD, FAIR]] * 2),
    "a good rate among bad ones": ([BAD, GOOD, BAD], [[BAD, GOOD, BAD]]),
    "the same best at different rates": ([GOOD, BAD, BAD], [[BAD, BAD, GOOD]]),
    "one good rate against three": ([GOOD, BAD, BAD], [[GOOD, GOOD, GOOD]]),
}


@pytest.mark.parametrize("name", NULLS)
def test_without_a_difference_at_the_best_rates_at_most_one_study_in_twenty_claims_one(name: str) -> None:
    baseline, arms = NULLS[name]
    studies = 2000
    assert simulate(studies, baseline, arms).claims() <= at_most(LEVEL, studies)


def test_the_simulation_would_notice_a_level_spent_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking five times at 5 % each errs about twice as often as it may."""
    monkeypatch.setitem(globals(), "looks", lambda tests: tuple(Look(n, 1.0) for n in SEEDS))
    assert simulate(1000, *NULLS["one rate, all leap"]).claims() > at_most(LEVEL, 1000)


def test_seeds_that_do_alike_in_both_arms_make_it_err_less() -> None:
    assert simulate(600, *NULLS["one rate"], likeness=0.6).claims() <= at_most(LEVEL / 2, 600)


def test_a_large_difference_is_decided_at_the_first_look_with_a_fifth_of_the_runs() -> None:
    """As norm_softmax on tiles at 3e-4: every run leaps, and none with softmax."""
    tally = simulate(300, [(0.0, 500.0)], [[(0.98, 650.0)]])
    assert tally.share("sooner") == 1.0
    assert tally.runs.mean() < 0.25 * 2 * SEEDS[-1]


def test_a_fair_difference_is_mostly_found_with_fewer_runs_than_the_last_look_has() -> None:
    tally = simulate(400, [(0.5, 600.0)], [[(0.9, 600.0)]])
    assert tally.share("sooner") > 0.75
    assert tally.runs.mean() < 0.8 * 2 * SEEDS[-1]


def test_of_several_rates_the_beaten_ones_get_no_more_seeds() -> None:
    slow, fast = [BAD, (0.9, 900.0), BAD], [BAD, (1.0, 500.0), BAD]
    tally = simulate(200, slow, [fast])
    assert tally.share("sooner") > 0.95
    assert tally.runs.mean() < 0.4 * 6 * SEEDS[-1]


def test_the_slower_arm_is_called_later() -> None:
    assert simulate(100, [GOOD], [[BAD]]).share("later") > 0.95


def test_without_a_difference_most_are_given_up_before_the_last_look() -> None:
    tally = simulate(400, [FAIR], [[FAIR]])
    assert tally.share("none seen") > 0.95
    assert tally.runs.mean() < 0.75 * 2 * SEEDS[-1]


def test_runs_that_never_leap_are_no_difference() -> None:
    tally = simulate(5, [(0.0, 500.0)], [[(0.0, 500.0)]])
    assert {one.rule for study in tally.decisions for one in study if one} == {"unlikely"}
