"""What a race has shown of each remedy, beside waiting on the same batches with the same random numbers.

Differences are paired step by step: loss of "wait" - loss of the remedy. Their interval is that of the mean over the last
quarter of the steps that both have taken, and over 20 at least. Neighbouring steps err alike, so the error is that of the means
of blocks of n^0.4 steps around a line, with Student's t for so few blocks (batch means); and there are m remedies, so each
interval has a level of 1 - 0.05/m: all of them hold together in 95 % of races (Bonferroni).

A remedy **helped** if it leapt, or if its whole interval is above 0, the difference is at least 2 % of the loss and still grows.
A lower rate lowers a noisy loss at once and then no more: that is not help. And it must gain clearly more than waiting does: over
these steps the difference grows by at least twice what "wait" gains itself. So a run that learns is told to wait. Where waiting
lowers the loss to the end of the race there was no plateau, and none is said to be left: a remedy that helped learns faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.plateaus import trend
from eureka.formats import NONE, number, percent

Standing = Literal["helped", "level", "worse", "diverged", "skipped", "not run"]

LEAST = 0.02
"""The least difference that counts, as a share of the loss."""
TIMES = 2.0
"""How many times the gain of waiting a difference must be, or grow by."""
LEAP, LEAP_ERRORS, WINDOW = 0.1, 5.0, 10
"""A leap: over the last steps the loss is this share below that of waiting, and this many standard errors."""
WANDERS, PIECE = 6.0, 5
"""And so many times as far as waiting wanders by itself, from one piece of so many steps to another: a race looks often."""
IN_A_ROW = 20
"""Or in so many pairs in a row: where batches differ much, waiting wanders far, and pairs do not."""
LEARNING, LEARNING_STEPS = 0.1, 40
"""A run learns by itself if its loss falls by this share in so many steps."""
LAST_HALF = 0.25
"""The least part of such a fall over a whole race that its last half has; of a straight line it is about a half."""
SHARE, FEWEST = 0.25, 20
"""The part of the steps, at the end, that the interval is about, and its fewest steps: of fewer, the error is not known."""
SURE = 0.95
BLOCK = 0.4
"""Of n steps a block has n to this power."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One remedy against waiting. Differences are shares of the loss of "wait"; above 0 the remedy is better."""

    name: str
    changes: str
    standing: Standing
    steps: int
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    leapt: int | None = None
    """the step at which it was seen to have leapt; None where waiting learns by itself, and there is no plateau to leave"""
    why: str = ""
    """why it was skipped, or is not called help"""

    @property
    def helped(self) -> bool:
        return self.standing == "helped"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """A row of a table."""
        if self.difference is None or self.low is None or self.high is None:
            return (self.name, str(self.steps) if self.steps else NONE, NONE, NONE, self.standing)
        span = f"{_signed(self.low)} to {_signed(self.high)}"
        said = f"leapt at step {self.leapt}" if self.leapt is not None else self.standing
        return (self.name, str(self.steps), _signed(self.difference), span, said)


def _signed(value: float) -> str:
    return f"{100 * value:+.1f} %"


@dataclass(frozen=True)
class Difference:
    """The mean of paired differences at the end of a race, its standard error, and how far it grew meanwhile."""

    mean: float
    error: float
    growth: float
    growth_error: float
    level: float
    """the mean loss of waiting at the same steps"""
    freedom: int
    """degrees of freedom of the error"""

    def interval(self, remedies: int) -> tuple[float, float]:
        """All intervals of so many remedies hold together."""
        from scipy.stats import t

        reach = float(t.ppf(1 - (1 - SURE) / (2 * max(remedies, 1)), self.freedom)) * self.error
        return self.mean - reach, self.mean + reach


def difference(losses: Sequence[float], wait: Sequence[float]) -> Difference:
    """Compare two forks at the steps that both have taken."""
    both = min(len(losses), len(wait))
    count = _at_the_end(both)
    ours, theirs = np.array(losses[both - count : both]), np.array(wait[both - count : both])
    gained = theirs - ours
    level = float(np.abs(theirs).mean())
    if count < 4:
        return Difference(float(gained.mean()), math.inf, 0.0, math.inf, level, 1)
    t = np.arange(count) - 0.5 * (count - 1)
    slope = float(t @ gained) / float(t @ t)
    length = max(round(count**BLOCK), 2)
    blocks = (gained - gained.mean() - slope * t)[count % length :].reshape(-1, length).mean(axis=1)
    freedom = max(len(blocks) - 2, 1)
    error = math.sqrt(float(np.square(blocks - blocks.mean()).sum()) / freedom / len(blocks))
    return Difference(float(gained.mean()), error, slope * count, error * math.sqrt(12.0), level, freedom)


def _at_the_end(both: int) -> int:
    """How many steps the interval is about."""
    return min(both, max(round(SHARE * both), FEWEST))


def after_leap(losses: Sequence[float], wait: Sequence[float]) -> Difference:
    """Of a fork that has just leapt: over the steps in which that was seen, as its mean still moves."""
    both = min(len(losses), len(wait))
    count = min(both, WINDOW)
    theirs = np.array(wait[both - count : both])
    gained = theirs - np.array(losses[both - count : both])
    error = jitter(gained) if count > 1 else math.inf
    return Difference(float(gained.mean()), error, 0.0, math.inf, float(np.abs(theirs).mean()), max(count - 1, 1))


def has_leapt(losses: Sequence[float], wait: Sequence[float]) -> bool:
    """Whether the last steps lie far below those of waiting, and by more than waiting explains.

    Below its middle as well: that waiting has a spike just now is not a leap of everybody else.
    """
    both = min(len(losses), len(wait))
    if both < WINDOW:
        return False
    ours, theirs = np.array(losses[both - WINDOW : both]), np.array(wait[both - WINDOW : both])
    gained = theirs - ours
    gap = min(float(gained.mean()), float(np.median(wait) - ours.mean()))
    least = LEAP * float(np.abs(theirs).mean())
    if gap < max(least, LEAP_ERRORS * jitter(gained), TIMES * gain(wait[:both])):
        return False
    pairs = np.array(wait[:both][-IN_A_ROW:]) - np.array(losses[:both][-IN_A_ROW:])
    return gap > WANDERS * wander(wait) or (len(pairs) == IN_A_ROW and bool((pairs > 0.5 * least).all()))


def wander(losses: Sequence[float]) -> float:
    """How far the mean of a few steps strays from a line through all of them, by its median, which a spike does not move."""
    pieces = np.array(losses[len(losses) % PIECE :]).reshape(-1, PIECE).mean(axis=1)
    if len(pieces) < 3:
        return 0.0
    t = np.arange(len(pieces)) - 0.5 * (len(pieces) - 1)
    rest = pieces - t * float(t @ pieces) / float(t @ t)
    return (
        1.4826 * float(np.median(np.abs(rest - np.median(rest)))) * math.sqrt(len(pieces) / (len(pieces) - 2))
    )  # of normal noise: its size


def jitter(values: Array) -> float:
    """The standard error of a mean, by neighbours against each other: in a leap the mean itself moves (von Neumann 1941)."""
    return math.sqrt(float(np.square(np.diff(values)).mean()) / 2 / len(values))


def gain(losses: Sequence[float]) -> float:
    """How far a line through the losses falls; 0 if that is not clear of its noise."""
    fall, error = trend(np.array(losses)) if len(losses) > 2 else (0.0, 0.0)
    return fall if fall > 2 * error else 0.0


def learned(wait: Sequence[float]) -> float:
    """The share by which waiting lowers the loss in the last steps, if it is so much that waiting is enough; else 0."""
    share = fell(wait[-LEARNING_STEPS:]) if len(wait) >= LEARNING_STEPS else 0.0
    return share if share >= LEARNING else 0.0


def fell(losses: Sequence[float]) -> float:
    """The share by which the last few losses are below the first few; 0 if that is not clear of their noise."""
    if len(losses) < 2 * WINDOW:
        return 0.0
    first, end = np.array(losses[:WINDOW]), np.array(losses[-WINDOW:])
    fall = float(first.mean() - end.mean())
    clear = fall > LEAP_ERRORS * math.hypot(jitter(first), jitter(end))
    return fall / max(abs(float(first.mean())), 1e-12) if clear else 0.0


def alone(wait: Sequence[float]) -> float:
    """The share by which waiting lowers the loss over a race, if that is no plateau: its last half falls as well; else 0."""
    share = fell(wait)
    return share if share >= LEARNING and fell(wait[len(wait) // 2 :]) >= LAST_HALF * share else 0.0


def judge(
    name: str,
    changes: str,
    losses: Sequence[float],
    wait: Sequence[float],
    *,
    remedies: int,
    leapt: int | None,
    skipped: str,
    given_up: bool = False,
) -> Verdict:
    """The verdict on one remedy; one that was given up cannot win."""
    if skipped:
        return Verdict(name=name, changes=changes, standing="skipped", steps=len(losses), why=skipped)
    if not losses:
        return Verdict(name=name, changes=changes, standing="not run", steps=0, why="the race was decided before its turn.")
    if not math.isfinite(losses[-1]):
        why = f"its loss is no number after {len(losses)} steps."
        return Verdict(name=name, changes=changes, standing="diverged", steps=len(losses), why=why)
    found = difference(losses, wait) if leapt is None else after_leap(losses, wait)
    low, high = found.interval(remedies)
    level = found.level or 1.0
    both = min(len(losses), len(wait))
    standing, why = _standing(found, low, high, gain(wait[both - _at_the_end(both) : both]), leapt is not None)
    if given_up and standing == "helped":
        standing, why = "level", f"it was lower and gained when it made room for others at step {len(losses)}: race it alone."
    return Verdict(
        name=name,
        changes=changes,
        standing=standing,
        steps=len(losses),
        difference=found.mean / level,
        low=low / level,
        high=high / level,
        leapt=None if alone(wait) else leapt,
        why=why,
    )


def _standing(found: Difference, low: float, high: float, waiting: float, leapt: bool) -> tuple[Standing, str]:
    if leapt:
        return "helped", ""
    if high < 0 and found.mean <= -LEAST * found.level:
        return "worse", ""
    if low <= 0 or found.mean < LEAST * found.level:
        return "level", ""
    if found.growth <= 0:
        return "level", "it is lower, but no longer gains on waiting."
    if found.growth < 2 * found.growth_error:
        return "level", "it is lower, but that it still gains on waiting is not clear: a longer race may tell."
    if found.growth < TIMES * waiting:
        return (
            "level",
            f"waiting gains {number(waiting)} itself at the end, and it gains less than {number(TIMES)} times that more.",
        )
    return "helped", ""


def far_ahead(verdict: Verdict) -> bool:
    """Whether it helped so much that nothing more needs to be known: its whole interval is a leap below waiting."""
    return verdict.helped and verdict.low is not None and verdict.low >= LEAP


def in_words(verdicts: Sequence[Verdict], wait: Sequence[float]) -> str:
    """What to do, in a sentence or two."""
    helped = [one for one in verdicts if one.helped]
    possible = [one for one in verdicts if one.standing != "skipped"]
    if helped:
        return _best(helped, wait)
    if share := learned(wait):
        return f"Wait: the run learns by itself; its loss fell by {percent(share, 0)} in the last {LEARNING_STEPS} steps."
    if not possible:
        return "None of the remedies could be applied."
    return f"None of them helped: {_missed(possible)}"


def _missed(tried: Sequence[Verdict]) -> str:
    """By what the best of them missed being called help."""
    lower = [one for one in tried if one.standing == "level" and one.difference is not None and one.difference > 0]
    best = max(lower, key=lambda one: (bool(one.why), one.difference), default=None)
    if best is None:
        return "no remedy has a loss below that of waiting."
    assert best.difference is not None
    assert best.low is not None
    assert best.high is not None
    told = f"the best is {best.name}, at {_signed(best.difference)}"
    if best.why:
        return f"{told}; {best.why}"
    if best.low <= 0:
        return f"{told}, and its interval ({_signed(best.low)} to {_signed(best.high)}) holds 0: it may be none."
    return f"{told}, and less than {percent(LEAST, 0)} does not count."


def _best(helped: Sequence[Verdict], wait: Sequence[float]) -> str:
    best = winner(helped)
    assert best is not None
    assert best.difference is not None
    below = f"its loss is {percent(best.difference, 0)} below that of waiting on the same batches"
    if share := alone(wait):
        told = f"The run learns by itself: its loss fell by {percent(share, 0)} in {len(wait)} steps."
        return f"{told} {best.name} learns faster: after {best.steps} steps {below}."
    if best.leapt is not None:
        return f"{best.name} helped: it left the plateau within {best.leapt} steps; {below}."
    return f"{best.name} helped: {below}, and gains on it."


def winner(verdicts: Sequence[Verdict]) -> Verdict | None:
    """The first that leapt, or else the one whose interval begins highest."""
    helped = [one for one in verdicts if one.helped]
    leapt = [one for one in helped if one.leapt is not None]
    return max(leapt or helped, key=lambda one: one.low if one.low is not None else -math.inf, default=None)
