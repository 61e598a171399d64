"""Values of any size, and single absurd ones among them, brought to where sums and squares of doubles are exact enough."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from eureka.curves.grid import Array
from eureka.curves.moment import EurekaMoment, Plateau

ABSURD = 1e3
"""A few values that are so many times larger than all others are brought down to that: nothing else could be seen beside them."""
FEW = 200
"""One value in so many, and one more, may be absurd."""
USUAL = (1e-100, 1e100)
"""Curves of other sizes are multiplied by a power of two, which changes no digit."""


def tame(values: ArrayLike) -> tuple[Array, int]:
    """The values without absurd ones, and times two to the power of the second result.

    >>> values, power = tame([2.0, 1e30, 2.1, 2.2] * 1 + [2.0] * 4)
    >>> float(values.max()), power
    (2200.0, 0)
    """
    y = np.array(values, dtype=np.float64).ravel()
    sizes = np.abs(y[np.isfinite(y)])
    few = 1 + len(sizes) // FEW
    if len(sizes) <= 2 * few:
        return y, 0
    largest = float(np.partition(sizes, -few - 1)[-few - 1])
    if largest == 0:
        return y, 0
    power = power_for(largest)
    bound = ABSURD * math.ldexp(largest, power)
    with np.errstate(under="ignore", over="ignore"):
        y = np.ldexp(y, power)
    return np.clip(y, -bound, bound, out=y), power  # clip passes NaN on


def power_for(size: float) -> int:
    """The power of two that brings a size near 1; 0 for usual sizes."""
    return 0 if USUAL[0] < size < USUAL[1] else -math.frexp(size)[1]


def times_two_to(plateau: Plateau, power: int) -> Plateau:
    return replace(plateau, level=math.ldexp(plateau.level, power)) if power else plateau


def moment_times_two_to(moment: EurekaMoment, power: int) -> EurekaMoment:
    if not power:
        return moment
    before, after = math.ldexp(moment.before, power), math.ldexp(moment.after, power)
    return replace(moment, before=before, after=after, plateau=times_two_to(moment.plateau, power))
