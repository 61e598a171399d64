"""Labels that are a sum of inputs modulo a prime, as parity and modular addition are: a forest of trees finds nothing in them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SPARE = 24
"""Bits of labels that fit, beyond those that any would fit. Labels that are drawn pass with a chance of 2 to the power of -24."""
CHANCE = 1e-6
"""A straight line that fits by chance no oftener than this tells something of the labels."""
LARGEST = 2.0**53
"""Up to here floating-point numbers hold every whole number."""
MOST = 512
"""Inputs that are looked at, at most: the time grows with their square."""


def modulus_of(x: Floats, y: Ints) -> int | None:
    """How many labels there are, if each is a sum of two or more inputs times whole numbers, modulo that; a row is a sample.

    A sum that a straight line follows, because it seldom or never wraps round, is none.

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
    spare = _spare_bits(numbers, y, p)
    if spare is None or spare < SPARE or any(_spare_bits([one], y, p) is not None for one in numbers) or _is_line(numbers, y):
        return None
    return p


def _is_whole(column: Floats) -> bool:
    return _is_double(column) or bool((np.abs(column) < LARGEST).all() and (column == np.round(column)).all())


def _is_double(column: Floats) -> bool:
    """Whether there are but two values, such as -1 and 1."""
    return bool(np.isin(column, (column.min(), column.max())).all())


def _whole(column: Floats) -> Ints:
    """Two values as 0 and 1, others as they are."""
    whole: Ints = (column == column.max() if _is_double(column) else column).astype(np.int64)
    return whole


def _is_prime(p: int) -> bool:
    return p > 1 and all(p % factor for factor in range(2, int(p**0.5) + 1))


def _spare_bits(columns: Sequence[Ints], y: Ints, p: int) -> float | None:
    """If the labels are a combination of the columns and a constant modulo p, by how many bits more than they had to be.

    This is Gauss's elimination. Rows that are alike count once.
    """
    system, rank = np.unique(np.stack([*columns, np.ones_like(y), y], axis=1) % p, axis=0), 0
    for place in range(system.shape[1] - 1):
        left = rank + np.flatnonzero(system[rank:, place])
        if not len(left):
            continue
        system[[rank, left[0]]] = system[[left[0], rank]]
        system[rank] = system[rank] * pow(int(system[rank, place]), -1, p) % p
        below = rank + 1 + np.flatnonzero(system[rank + 1 :, place])
        system[below] = (system[below] - system[below, place, None] * system[rank]) % p
        rank += 1
    return None if system[rank:, -1].any() else (len(system) - rank) * math.log2(p)


def _is_line(columns: Sequence[Ints], y: Ints) -> bool:
    """Whether a linear function of the columns tells something of the labels: the F-test of a regression."""
    from scipy.stats import f

    line = np.stack([*columns, np.ones_like(y)], axis=1).astype(np.float64)
    fitted, _, rank, _ = np.linalg.lstsq(line, y.astype(np.float64), rcond=None)
    left, whole = np.square(y - line @ fitted).sum(), np.square(y - y.mean()).sum()
    told, free = rank - 1, len(y) - rank
    if told < 1 or free < 1:
        return False
    return left < 1e-9 * whole or float(f.sf((whole - left) / told / (left / free), told, free)) < CHANCE
