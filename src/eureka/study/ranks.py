"""Two samples compared by their ranks alone, so that a run that diverged is simply the worst.

The test is that of Mann and Whitney, the shift that of Hodges and Lehmann, with the interval that belongs to both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eureka.study.dealings import Floats, two_sided
from eureka.study.survival import Estimate

NORMAL_ABOVE = 2500
"""Of more pairs than that, how many are in order is normal, to less than one pair in the ends of an interval."""


def rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """The two-sided p-value of Mann and Whitney's test that one sample is lower than the other; infinite values are the highest.

    >>> rank_test([1, 2, 3], [4, 5, 6])
    0.1
    """
    from scipy.stats import rankdata

    ranks: Floats = rankdata([*a, *b])
    return two_sided(ranks - ranks.mean(), len(a))


def shift(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Estimate:
    """By how much the values of `b` are above those of `a`: the median of all differences, and its exact interval.

    The interval holds every shift that the rank test does not refuse. An end that the samples are too small for, or that is
    infinite, is None.

    >>> shift([1, 2, 3, 4], [11, 12, 13, 14])
    Estimate(value=10.0, low=7.0, high=13.0)
    """
    differences = sorted(0.0 if y == x else float(y - x) for x in a for y in b)  # two runs that diverged do not differ
    outside = _outside(len(a), len(b), (1 - confidence) / 2)
    ends = (None, None) if outside == 0 else (differences[outside - 1], differences[-outside])
    return Estimate(_finite(float(np.median(differences))), *map(_finite, ends))


def _outside(a: int, b: int, chance: float) -> int:
    """Which difference, counted from either end, is the end of the interval; 0 if it has none."""
    if a * b > NORMAL_ABOVE:
        from scipy.stats import norm

        return int(a * b / 2 + float(norm.ppf(chance)) * math.sqrt(a * b * (a + b + 1) / 12))
    ways = _ways(a, b)
    below, counted = 0, 0
    while (counted + ways[below]) <= chance * math.comb(a + b, a):
        counted += ways[below]
        below += 1
    return below


def _ways(a: int, b: int) -> list[int]:
    """In how many ways of dealing so many ranks `u` of the pairs are in order, for each u: a Gaussian binomial coefficient."""
    ways = [1] + [0] * (a * b)
    for i in range(1, a + 1):
        for u in range(a * b, b + i - 1, -1):  # times 1 - x^(b + i)
            ways[u] -= ways[u - b - i]
        for u in range(i, a * b + 1):  # by 1 - x^i
            ways[u] += ways[u - i]
    return ways


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
