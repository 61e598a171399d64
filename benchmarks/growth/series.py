"""A quantity over sizes, and the exponent with which it grows."""

from __future__ import annotations

import math
from dataclasses import dataclass

LAST = 3
"""Sizes that the exponent is fitted to: the largest, where what is constant no longer counts."""


@dataclass(frozen=True)
class Point:
    """What one size costs."""

    size: int
    cost: float
    """processor seconds, or operations"""
    megabytes: float | None = None
    """held at most, beyond what was held before; None where it was not measured"""


@dataclass(frozen=True)
class Series:
    """Costs over sizes."""

    what: str
    over: str
    """what the size counts"""
    points: tuple[Point, ...]

    @property
    def time_exponent(self) -> float:
        return exponent([(p.size, p.cost) for p in self.points])

    @property
    def memory_exponent(self) -> float | None:
        measured = [(p.size, p.megabytes) for p in self.points if p.megabytes]
        return exponent(measured) if len(measured) > 1 else None

    def cost_at(self, size: int) -> float:
        """What a larger size would cost, by the exponent."""
        last = self.points[-1]
        return float(last.cost * (size / last.size) ** self.time_exponent)


def exponent(points: list[tuple[int, float]]) -> float:
    """The slope of log(cost) over log(size), by least squares over the largest sizes.

    >>> round(exponent([(1, 5.0), (10, 2.0), (100, 200.0), (1000, 20_000.0)]), 3)
    2.0
    """
    logs = [(math.log(size), math.log(cost)) for size, cost in points[-LAST:] if cost > 0]
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    slope: float = sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)
    return slope
