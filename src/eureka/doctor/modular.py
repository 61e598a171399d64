"""Labels that are a sum of inputs modulo a prime, as parity and modular addition are: no single input tells anything of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SPARE = 24
"""Samples beyond those that any labels could be fitted to. Labels that are drawn pass with a chance of 2 to the power of -24."""
MOST = 512
"""Inputs that are looked at, at most: the time grows with their square."""


def modulus_of(x: Floats, y: Ints) -> int | None:
    """How many labels there are, if each is a sum of two or more inputs times whole numbers, modulo that; a row is a sample.

    >>> a, b = np.divmod(np.arange(35), 5)
    >>> x = np.stack([a, b], axis=1).astype(np.float64)
    >>> modulus_of(x, (a + 2 * b + 3) % 5), modulus_of(x, a * b % 5), modulus_of(x, 2 * b % 5)
    (5, None, None)
    """
    p = int(y.max()) + 1
    columns = [column for column in x.T if column.min() < column.max()]
    if not _is_prime(p) or len(columns) > MOST or not all(map(_is_whole, columns)):
        return None
    numbers = [_whole(column) for column in columns]
    if not _is_sum(numbers, y, p) or any(_is_sum([one], y, p) for one in numbers):
        return None
    return p


def _is_whole(column: Floats) -> bool:
    return _is_double(column) or bool((column == np.round(column)).all())


def _is_double(column: Floats) -> bool:
    """Whether there are but two values, such as -1 and 1."""
    return bool(np.isin(column, (column.min(), column.max())).all())


def _whole(column: Floats) -> Ints:
    """Two values as 0 and 1, others as they are."""
    whole: Ints = (column == column.max() if _is_double(column) else column).astype(np.int64)
    return whole


def _is_prime(p: int) -> bool:
    return p > 1 and all(p % factor for factor in range(2, int(p**0.5) + 1))


def _is_sum(columns: Sequence[Ints], y: Ints, p: int) -> bool:
    """Whether the labels are a combination of the columns and a constant modulo p: Gauss's elimination."""
    system, rank = np.stack([*columns, np.ones_like(y), y], axis=1) % p, 0
    for place in range(system.shape[1] - 1):
        left = rank + np.flatnonzero(system[rank:, place])
        if not len(left):
            continue
        system[[rank, left[0]]] = system[[left[0], rank]]
        system[rank] = system[rank] * pow(int(system[rank, place]), -1, p) % p
        below = rank + 1 + np.flatnonzero(system[rank + 1 :, place])
        system[below] = (system[below] - system[below, place, None] * system[rank]) % p
        rank += 1
    return rank + SPARE <= len(system) and not system[rank:, -1].any()
