"""Permutation tests of a sum of scores: how often dealing the runs anew into two groups parts them as far.

Under the null hypothesis every dealing is equally likely, so the p-values are exact for any number of runs.
`scipy.stats.permutation_test` gives the same where all dealings are tried, in ten times the time, and refuses a group of one.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

EXACT_UP_TO = 50_000
"""Up to this many ways to deal the runs into two groups, all are tried; of more, this many at random."""
NORMAL_ABOVE = 1000
"""Dealings of more runs than that are not tried: their sums are normal, to more digits than anybody is told."""
SLICES = 50
"""In so many slices the dealings are drawn, so that the random numbers of one slice alone are in memory."""
TINY = 1e-9
"""Sums that differ by less are equal but for rounding."""


def two_sided(scores: Floats, group: int, *, seed: int = 0) -> float:
    """How often the sum over a group of this size is as far from zero as that of the first scores; all scores sum to zero."""
    if len(scores) > NORMAL_ABOVE:
        return math.erfc(abs(_standardised(scores, group)) / math.sqrt(2))
    found, sums = _dealt(scores, group, seed)
    return _share(np.abs(sums) >= abs(found) - TINY, len(scores), group)


def sides(scores: Floats, group: int, *, seed: int = 0) -> tuple[float, float]:
    """How often the sum is as large as that of the first scores, and how often it is as small."""
    if len(scores) > NORMAL_ABOVE:
        z = _standardised(scores, group) / math.sqrt(2)
        return math.erfc(z) / 2, math.erfc(-z) / 2
    found, sums = _dealt(scores, group, seed)
    return _share(sums >= found - TINY, len(scores), group), _share(sums <= found + TINY, len(scores), group)


def smallest_side(a: int, b: int) -> float:
    """The least p-value that `sides` can give for groups of these sizes."""
    dealings = math.comb(a + b, a)
    return 1 / (dealings if dealings <= EXACT_UP_TO else EXACT_UP_TO + 1)


def _dealt(scores: Floats, group: int, seed: int) -> tuple[float, Floats]:
    """The sum as it was found, and for every dealing."""
    return float(scores[:group].sum()), scores[_dealings(len(scores), group, seed)].sum(axis=1)


def _standardised(scores: Floats, group: int) -> float:
    """The sum by its standard deviation over all dealings, n_a n_b / (n (n - 1)) · Σ (score - mean)² being its variance."""
    n, apart = len(scores), scores - scores.mean()
    variance = group * (n - group) / (n * (n - 1)) * float(apart @ apart)
    return float(apart[:group].sum()) / math.sqrt(variance) if variance > 0 else 0.0


def _share(reached: Bools, n: int, group: int) -> float:
    """The share of dealings that go as far; where they are drawn at random, the one that was found is one of them."""
    found = int(reached.sum())
    return found / len(reached) if math.comb(n, group) <= EXACT_UP_TO else (found + 1) / (len(reached) + 1)


@lru_cache(maxsize=8)
def _dealings(n: int, group: int, seed: int) -> NDArray[np.int16]:
    """Who is in the first group, a dealing a row: kept in two bytes each, and dealt some rows at a time."""
    if math.comb(n, group) <= EXACT_UP_TO:
        return np.array(list(itertools.combinations(range(n), group)), dtype=np.int16)
    rng, dealings = np.random.default_rng(seed), np.empty((EXACT_UP_TO, group), dtype=np.int16)
    for rows in np.array_split(dealings, SLICES):
        rows[:] = np.argsort(rng.random((len(rows), n)), axis=1)[:, :group]
    return dealings
