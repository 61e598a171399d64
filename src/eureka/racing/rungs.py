"""Successive halving: how far each rung goes, and who stays in the race after it.

A remedy for a plateau often shows nothing at first, or a loss that is higher than before, and then leaps. So a rung keeps two
kinds: those with the lowest loss, and those whose loss falls fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eureka.curves.plateaus import trend

FIRST = 40
"""Steps of the first rung; each further one goes twice as far."""
LEFT = 2
"""So many remedies stay to the end."""


@dataclass(frozen=True)
class Rung:
    """How many remedies run, and up to which step."""

    remedies: int
    until: int


def rungs(remedies: int, steps: int) -> list[Rung]:
    """
    >>> rungs(8, 320)
    [Rung(remedies=8, until=40), Rung(remedies=4, until=80), Rung(remedies=3, until=160), Rung(remedies=2, until=320)]
    """
    found, until = [Rung(remedies, min(FIRST, steps))], FIRST
    while until < steps:
        until = min(2 * until, steps)
        remedies = max(min(LEFT, remedies), remedies // 2 if len(found) == 1 else remedies - max(1, remedies // 4))
        found.append(Rung(remedies, until))
    return found


def total(plan: Sequence[Rung]) -> int:
    """The most steps that a race takes: those of the remedies and of waiting."""
    starts = [0, *(rung.until for rung in plan)]
    return sum((rung.remedies + 1) * (rung.until - start) for rung, start in zip(plan, starts, strict=False))


def stay(losses: Sequence[Sequence[float]], count: int) -> list[int]:
    """Who stays: by turns the one whose loss falls fastest and the one whose loss is lowest, over the last half of the steps.

    Where two are level the first one is taken.

    >>> stay([[2.0] * 40, [3.0 - 0.05 * step for step in range(40)], [1.9] * 40], 2)
    [1, 2]
    """
    halves = [np.array(one[len(one) // 2 :]) for one in losses]
    falls = sorted(range(len(halves)), key=lambda index: -round(trend(halves[index])[0], 6))
    levels = sorted(range(len(halves)), key=lambda index: float(halves[index].mean()))
    by_turns = dict.fromkeys(index for pair in zip(falls, levels, strict=True) for index in pair)
    return sorted(list(by_turns)[:count])
