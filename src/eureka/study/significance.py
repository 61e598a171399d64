"""Is the difference real? Tests that hold their false-positive rate with a handful of runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from eureka.study.survival import Bools, Floats, Times

EXACT_UP_TO = 20_000
"""So many ways to deal the runs into two groups are all tried; of more, this many at random."""


def log_rank(a: Times, b: Times, *, seed: int = 0) -> float:
    """The two-sided p-value of the log-rank test by permutation: how often dealing the runs anew parts the groups as far.

    Z = Σ_t (d_a(t) - d(t) n_a(t) / n(t)). Under the null hypothesis every dealing is equally likely, so the p-value is exact
    for any number of runs, which the usual normal approximation is not.
    """
    steps, observed = np.concatenate([a.steps, b.steps]), np.concatenate([a.observed, b.observed])
    scores = _scores(steps, observed)
    dealings = _dealings(len(steps), len(a), seed)
    found = abs(scores[: len(a)].sum())
    sums = np.abs(scores[dealings].sum(axis=1))
    reached = int((sums >= found - 1e-9).sum())
    if math.comb(len(steps), len(a)) <= EXACT_UP_TO:
        return reached / len(dealings)
    return (reached + 1) / (len(dealings) + 1)  # the dealing that was found is one of them


def _scores(steps: Floats, observed: Bools) -> Floats:
    """Each run's part of Z: 1 if it had its moment, less the hazard that all runs together had until then."""
    moments = np.unique(steps[observed])
    waiting = (steps[None, :] >= moments[:, None]).sum(axis=1)
    happened = ((steps[None, :] == moments[:, None]) & observed[None, :]).sum(axis=1)
    hazard = happened / waiting
    exposed = steps[:, None] >= moments[None, :]
    scores: Floats = observed.astype(float) - (exposed * hazard[None, :]).sum(axis=1)
    return scores


def _dealings(n: int, group: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.intp]]:
    if math.comb(n, group) <= EXACT_UP_TO:
        return np.array(list(itertools.combinations(range(n), group)), dtype=np.intp)
    rng = np.random.default_rng(seed)
    return np.argsort(rng.random((EXACT_UP_TO, n)), axis=1)[:, :group]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the chance of even one false positive among all of them stays at the level.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected
