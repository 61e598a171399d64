"""Successive halving: how far each rung goes, and who stays in the race after it.

A remedy for a plateau often shows a loss that is higher than before, and falls from there. So those stay whose loss would be
lowest if it went on falling as it does. All forks see the same batches, so the noise of the batches favours nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.plateaus import trend

FIRST = 80
"""Steps of the first rung; each further one goes twice as far. Of fewer steps a slope is mostly noise."""
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
    [Rung(remedies=8, until=80), Rung(remedies=4, until=160), Rung(remedies=3, until=320)]
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
    """Who stays: those whose loss would be lowest after twice the steps, by a line through the last half of them.

    Where two are level the first one is taken.

    >>> stay([[2.0] * 40, [3.0 - 0.05 * step for step in range(40)], [1.9] * 40], 2)
    [1, 2]
    """
    ahead = [round(_expected(np.array(one[len(one) // 2 :]), len(one)), 6) for one in losses]
    return sorted(sorted(range(len(ahead)), key=lambda index: ahead[index])[:count])


def _expected(half: Array, steps: int) -> float:
    """The loss so many steps after the last one, if it goes on as in the last half."""
    fall, _ = trend(half)
    return float(half.mean()) - fall * (0.5 + steps / len(half))
