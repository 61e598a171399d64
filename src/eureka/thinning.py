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
    chosen = {0, n - 1, *keep}
    for column in columns:
        chosen.update(_extremes(column, buckets), _gaps(column))
    return np.array(sorted(chosen), dtype=np.intp)


def _extremes(column: Floats, buckets: int) -> list[int]:
    """The lowest (of equal ones the first) and the highest (of equal ones the last) of the finite values of each bucket."""
    finite = np.flatnonzero(np.isfinite(column))
    ends = len(column) * np.arange(1, buckets + 1) // buckets
    bucket = np.searchsorted(ends, finite, side="right")
    order = np.lexsort((column[finite], bucket))
    border = np.flatnonzero(np.diff(bucket[order]))
    firsts, lasts = np.append(0, border + 1), np.append(border, len(order) - 1)
    return [int(finite[order[i]]) for i in (*firsts, *lasts)] if len(finite) else []


def _gaps(column: Floats) -> list[int]:
    finite = np.isfinite(column)
    return [int(i) + 1 for i in np.flatnonzero(finite[:-1] & ~finite[1:])]
