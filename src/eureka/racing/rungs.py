"""Successive halving: how far each rung goes, and who stays in the race after it.

On a plateau the loss tells little: until its leap a fork that will leap has the loss of one that will not, and a remedy that
disturbs the model begins above it. So a fork is given up only if its loss would still be clearly above that of waiting if it went
on as it does, and a new start is not given up for its loss at all. Among the others those who are clearly below stay first, and
then the first in the order of the remedies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eureka.curves.plateaus import trend
from eureka.racing.verdict import LEAST

FIRST = 80
"""Steps of the first rung; each further one goes twice as far. Of fewer steps a slope is mostly noise."""
LEFT = 3
"""So many remedies stay to the end."""
CLEAR = 2.0
"""Standard errors of what is clear."""


@dataclass(frozen=True)
class Rung:
    """How many remedies run, and up to which step."""

    remedies: int
    until: int


def rungs(remedies: int, steps: int) -> list[Rung]:
    """
    >>> rungs(7, 480)
    [Rung(remedies=7, until=80), Rung(remedies=4, until=160), Rung(remedies=3, until=320), Rung(remedies=3, until=480)]
    """
    found, until = [Rung(remedies, min(FIRST, steps))], FIRST
    while until < steps:
        until = min(2 * until, steps)
        fewer = math.ceil(remedies / 2) if len(found) == 1 else remedies - max(1, remedies // 4)
        remedies = max(min(LEFT, remedies), fewer)
        found.append(Rung(remedies, until))
    return found


def total(plan: Sequence[Rung]) -> int:
    """The most steps that a race takes: those of the remedies and of waiting."""
    starts = [0, *(rung.until for rung in plan)]
    return sum((rung.remedies + 1) * (rung.until - start) for rung, start in zip(plan, starts, strict=False))


@dataclass(frozen=True)
class Expected:
    """By how much a fork would lie below waiting after twice the steps, as a share of its loss."""

    mean: float
    error: float
    calms: bool = False
    """whether it only takes out noise: then it is lower at once, and that says nothing of a leap"""
    restarts: bool = False
    """whether it is a new start: then its loss begins high, and that says nothing either"""

    @property
    def hopeless(self) -> bool:
        return not self.restarts and self.mean + CLEAR * self.error < -LEAST

    @property
    def lead(self) -> float:
        """The share that is clear; nothing where the losses do not tell."""
        sure = self.mean - CLEAR * self.error
        return round(sure, 6) if sure > LEAST and not self.calms else 0.0


def expected(losses: Sequence[float], wait: Sequence[float], *, calms: bool = False, restarts: bool = False) -> Expected:
    """Extend the line through the last half of the paired differences."""
    both = min(len(losses), len(wait))
    half = both - both // 2
    if half < 3:
        return Expected(0.0, math.inf, calms, restarts)
    theirs = np.array(wait[both - half : both])
    below = theirs - np.array(losses[both - half : both])
    fall, error = trend(below)
    reach = 0.5 + both / half
    level = max(float(np.abs(theirs).mean()), 1e-12)
    return Expected((float(below.mean()) - fall * reach) / level, error * reach / level, calms, restarts)


def stay(forks: Sequence[Expected], count: int) -> list[int]:
    """Who stays, at most so many; of those who are given up none, even if there is room.

    >>> level, ahead, behind = Expected(0.0, 0.1), Expected(0.5, 0.1), Expected(-0.5, 0.1)
    >>> stay([level, behind, level, ahead, level], 3)
    [0, 2, 3]
    """
    left = [index for index, one in enumerate(forks) if not one.hopeless]
    return sorted(sorted(left, key=lambda index: -forks[index].lead)[:count])
