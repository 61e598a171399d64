"""Long curves drawn with fewer points, without losing anything that could be seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

BUCKETS = 400
"""With 400 buckets across a picture no point moves by more than the width of the line that it is drawn with."""

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]
Indexes = np.ndarray[Any, np.dtype[np.intp]]


def thin(columns: Sequence[Floats], *, buckets: int = BUCKETS, keep: Iterable[int] = ()) -> Indexes:
    """The indexes of the points to draw: of each bucket of successive points those where a column is lowest or highest.

    Also the first and the last point, those to `keep`, and the first point of every gap, where a column is not finite. Columns of
    up to 2 · `buckets` points are drawn whole, which is most logs.

    columns   values of equal length, point by point

    >>> thin([np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.0])], buckets=2)
    array([0, 1, 3, 5])
    """
    n = len(columns[0])
    if n <= 2 * buckets:
        return np.arange(n)
    found = [part for column in columns for part in (*_extremes(column, buckets), _gaps(column))]
    return np.unique(np.concatenate([*found, np.array([0, n - 1, *keep], dtype=np.intp)]))


def _extremes(column: Floats, buckets: int) -> tuple[Indexes, Indexes]:
    """The lowest (of equal ones the first) and the highest (of equal ones the last) of the finite values of each bucket."""
    starts = len(column) * np.arange(buckets) // buckets
    bucket = np.repeat(np.arange(buckets), np.diff(starts, append=len(column)))
    finite = np.isfinite(column)
    lowest = np.minimum.reduceat(np.where(finite, column, np.inf), starts)
    highest = np.maximum.reduceat(np.where(finite, column, -np.inf), starts)
    low = np.flatnonzero(finite & (column == lowest[bucket]))
    high = np.flatnonzero(finite & (column == highest[bucket]))
    return low[np.diff(bucket[low], prepend=-1) > 0], high[np.diff(bucket[high], append=buckets) > 0]


def _gaps(column: Floats) -> Indexes:
    """The first point of every gap."""
    finite = np.isfinite(column)
    return np.flatnonzero(finite[:-1] & ~finite[1:]) + 1
