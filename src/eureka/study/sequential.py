"""A test that may be looked at while seeds are added, and still errs in at most 5 % of all studies without a difference.

Without a difference means: the waits at the best rates of two arms have the same distribution, or one arm's are never the sooner
ones. Where arms differ in shape alone (one leaps sooner in most runs and never in a few, with the same mean) a verdict tells of
the order: its share of studies is not bounded.

After each round of seeds there is a *look*. Every learning rate of an arm is held against every rate of the baseline, and against
the other rates of its own arm, by the one-sided log-rank test. A rate is *beaten* when some other rate is sooner. An arm is
sooner than the baseline when every rate of the baseline is beaten, and later when every rate of its own is: then the best rate
of the two arms together belongs to the other one. Only rates that are not beaten get more seeds.

Why it holds: each p-value is exact at its look. It is divided by the look's share of the level (the shares add up to 1), and
multiplied by the number of rates that it could have lost to and by 2 for the two directions. To be wrong, some test must reject
the best rate of all (whose waits no other rate's precede), which happens with a chance of at most Σ level · share / 2 in either
direction. This is a union bound: it needs no independence of looks, rates or arms, and it does not matter which runs are left
out, or when a contest ends. Holm's correction does the same over several arms. The tests simulate it, and what it costs:
`tests/study/test_sequential.py`.

The seeds of arm and baseline are not paired. A seed gives both the same data and, where they share them, the same weights to
begin with, so their waits go together a little if at all (in ``results/tiles`` the rank correlation is 0.1), which makes the test
err less often. A test within pairs could not decide before 9 seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from eureka.study.comparison import LEVEL, holm
from eureka.study.dealings import Bools, Floats, smallest_side
from eureka.study.survival import Times, log_rank_sides

SEEDS = (6, 9, 14, 20, 30)
"""After how many seeds there is a look."""
LAST_SHARE = 0.5
"""The share of the level that is kept for the last look; the others share the rest evenly."""
UNLIKELY = 0.5
"""From `UNLIKELY_FROM` seeds on, arms that differ no more than two of the same kind do in half of all cases are given up."""
UNLIKELY_FROM = 14

Outcome = Literal["sooner", "later", "none seen"]
Rule = Literal["p", "unlikely", "last look"]


@dataclass(frozen=True)
class Look:
    """The test after so many seeds, and the share of the level that it may spend."""

    seeds: int
    share: float


def looks(tests: int) -> tuple[Look, ...]:
    """The looks at a number of tests at once: from the first at which the clearest outcome could decide one of them.

    None where not even the last one could.

    >>> [look.seeds for look in looks(1)], [look.seeds for look in looks(9)]
    ([6, 9, 14, 20, 30], [9, 14, 20, 30])
    """
    for first in range(len(SEEDS)):
        *early, last = SEEDS[first:]
        shares = [(1 - LAST_SHARE) / len(early)] * len(early) + [LAST_SHARE] if early else [1.0]
        plan = tuple(map(Look, [*early, last], shares))
        if 2 * tests * smallest_side(plan[0].seeds, plan[0].seeds) <= LEVEL * plan[0].share:
            return plan
    return ()


@dataclass(frozen=True)
class Decision:
    """What a look decided, and by which rule."""

    outcome: Outcome
    rule: Rule
    seeds: int
    p_corrected: float
    """for all contests, at that look: it would fall when others are decided later"""


@dataclass(frozen=True)
class Contest:
    """An arm against its baseline. The rates of the arm come first, then those of the baseline."""

    of_arm: Bools
    least: Floats
    """[i, j]: the least p-value so far that rate i is sooner than rate j, divided by the share of its look"""
    look: Look | None = None
    """the last one that was taken"""
    contested: Bools | None = None
    """the rates that took part in it"""
    decision: Decision | None = None

    @classmethod
    def between(cls, arm_rates: int, baseline_rates: int) -> Contest:
        rates = arm_rates + baseline_rates
        return cls(np.arange(rates) < arm_rates, np.full((rates, rates), np.inf))

    @property
    def tests(self) -> int:
        """How many others a rate could lose to."""
        return len(self.of_arm) - 1

    @property
    def beaten(self) -> Floats:
        """For each rate the p-value that it is not the best of all."""
        found: Floats = np.minimum(1.0, 2 * self.tests * self.least.min(axis=0))
        return found

    @property
    def p_value(self) -> float:
        """That one of the two arms is sooner, valid whenever one looks."""
        return min(self.lost_by(self.of_arm), self.lost_by(~self.of_arm))

    def lost_by(self, side: Bools) -> float:
        return float(self.beaten[side].max())

    def unbeaten(self, contests: int) -> Bools:
        """The rates that are still in the contest, one of several."""
        return self.beaten > LEVEL / contests


class PairTests(NamedTuple):
    """The rates of a contest in pairs: [i, j] the p-value that rate i is sooner than rate j, NaN where it was not compared."""

    by_order: Floats
    """of the log-rank test, which goes by the order of the waits"""
    by_both: Floats
    """the same, but 1 where the mean wait says otherwise, which a run that never leaps can turn round"""


def take_look(contests: Sequence[Contest], found: Sequence[PairTests | None], look: Look, *, last: bool) -> list[Contest]:
    """The contests after a look; for one that was decided before, which stays as it is, there are no pairs."""
    run = [contest if pairs is None else _with(contest, pairs, look) for contest, pairs in zip(contests, found, strict=True)]
    corrected = holm([contest.p_value for contest in run])
    return [
        contest if pairs is None else replace(contest, decision=_decision(contest, pairs, p_corrected, look, last))
        for contest, pairs, p_corrected in zip(run, found, corrected, strict=True)
    ]


def _with(contest: Contest, pairs: PairTests, look: Look) -> Contest:
    least = np.fmin(contest.least, pairs.by_both / look.share)
    return replace(contest, least=least, look=look, contested=_contested(pairs.by_both))


def _contested(p: Floats) -> Bools:
    return np.asarray(~np.isnan(p).all(axis=0))


def _decision(contest: Contest, pairs: PairTests, p_corrected: float, look: Look, last: bool) -> Decision | None:
    if p_corrected <= LEVEL:
        later = contest.lost_by(contest.of_arm) < contest.lost_by(~contest.of_arm)
        return Decision("later" if later else "sooner", "p", look.seeds, p_corrected)
    if last:
        return Decision("none seen", "last look", look.seeds, p_corrected)
    if look.seeds >= UNLIKELY_FROM and _difference_now(contest, pairs.by_order) > UNLIKELY:
        return Decision("none seen", "unlikely", look.seeds, p_corrected)
    return None


def _difference_now(contest: Contest, p: Floats) -> float:
    """The two-sided p-value of this look alone, without any correction; with one rate each it is that of the log-rank test."""
    arm, base = contest.of_arm & _contested(p), ~contest.of_arm & _contested(p)
    sides = [p[np.ix_(mine, theirs)].min(axis=0).max() for mine, theirs in ((arm, base), (base, arm))]
    return min(1.0, 2 * float(min(sides)))


def compare_pairs(times: Sequence[Times | None]) -> PairTests:
    """The rates that contest, each with each; the times of the others are None."""
    by_order, by_both = (np.full((len(times), len(times)), np.nan) for _ in PairTests._fields)
    for i, mine in enumerate(times):
        for j, theirs in enumerate(times[:i]):
            if mine is not None and theirs is not None:
                sooner, later = log_rank_sides(mine, theirs)
                wait, other = mine.steps.mean(), theirs.steps.mean()
                by_order[i, j], by_order[j, i] = sooner, later
                by_both[i, j], by_both[j, i] = sooner if wait < other else 1.0, later if other < wait else 1.0
    return PairTests(by_order, by_both)
