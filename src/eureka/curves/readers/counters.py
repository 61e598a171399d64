"""How a counter behaves over the rows of a log: whether it rises, restarts, was resumed, or does not count at all."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eureka.curves.grid import Array

Shape = Literal["rises", "restarts", "resumed", "reversed", "unsorted", "constant", "absent", "none"]
Indexes = NDArray[np.intp]

JITTER = 3.0
"""A fall of a counter by up to this many of its usual increments is a row out of order."""
NEAR = 2.0
"""A counter restarts when it falls to within this many usual increments of where it began."""
DISORDER = 0.25
"""A counter that falls at a larger share of its rows than this, and not to its beginning, is not sorted."""


@dataclass(frozen=True)
class Counted:
    """The shape of a counter, the places where it starts again, and its usual increment."""

    shape: Shape
    starts: Indexes
    """The rows with which a part begins: the first row, and each restart (or resumption)."""
    increment: float = 1.0


def shape_of(counter: Array) -> Counted:
    """What a counter does, row by row; gaps are left out by the caller.

    >>> shape_of(np.array([0.0, 1, 2, 3])).shape, shape_of(np.array([5.0, 5, 5])).shape
    ('rises', 'constant')
    >>> found = shape_of(np.array([50.0, 100, 150, 50, 100, 150, 50]))
    >>> found.shape, found.starts.tolist()
    ('restarts', [0, 3, 6])
    """
    nothing = np.zeros(1, np.intp)
    if len(counter) < 2:
        return Counted("absent", nothing)
    change = np.diff(counter)
    if change.min() > 0:
        return Counted("rises", nothing, float(np.median(change)))
    up, down = change[change > 0], np.flatnonzero(change < 0)
    if not len(up) and not len(down):
        return Counted("constant", nothing)
    if not len(down):
        return Counted("rises", nothing, float(np.median(up)))
    if not len(up):
        return Counted("reversed", nothing, float(np.median(-change[down])))
    increment = float(np.median(up))
    unruly = len(down) > DISORDER * len(counter)
    back = down if unruly else down[-change[down] > JITTER * increment]
    again = counter[back + 1] <= counter[0] + NEAR * increment
    if unruly and not (again.all() and _is_whole(counter)):
        return Counted(_disorder(counter), nothing, increment)
    if not len(back):
        return Counted("rises", nothing, increment)
    starts = np.append(nothing, (back[again] if again.any() else back) + 1)
    return Counted("restarts" if again.any() else "resumed", starts, increment)


def _is_whole(counter: Array) -> bool:
    return bool(np.all(counter == np.round(counter)))


def _disorder(counter: Array) -> Shape:
    """Rows in any order still count if they are different whole numbers; other numbers that go up and down are no counter."""
    return "unsorted" if _is_whole(counter) and len(np.unique(counter)) > 0.9 * len(counter) else "none"


def superseded(counter: Array, starts: Indexes) -> NDArray[np.bool_]:
    """The rows that a resumed run wrote again: those that count at least as much as a later resumption.

    >>> superseded(np.array([1.0, 2, 3, 4, 5, 3, 4, 5, 6]), np.array([0, 5])).tolist()
    [False, False, True, True, True, False, False, False, False]
    """
    resumed = np.full(len(counter) + 1, np.inf)
    resumed[starts[1:]] = counter[starts[1:]]
    later = np.minimum.accumulate(resumed[::-1])[::-1][1:]
    return np.asarray(counter >= later)


def spread(counter: Array) -> Array:
    """Rows that share a count, spread evenly until the next one.

    >>> spread(np.array([1.0, 1, 2, 2, 3, 3])).tolist()
    [1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    """
    first = np.flatnonzero(np.concatenate([[True], np.diff(counter) != 0]))
    count = np.diff(np.append(first, len(counter)))
    levels = counter[first]
    gap = np.append(np.diff(levels), 0.0)
    gap[-1] = np.median(gap[:-1]) if len(gap) > 1 else 0.0
    place = np.arange(len(counter)) - np.repeat(first, count)
    return np.asarray(np.repeat(levels, count) + place / np.repeat(count, count) * np.repeat(gap, count))


def unrolled(counter: Array, starts: Indexes, increment: float, length: float | None, turns: Array | None) -> tuple[Array, float]:
    """A counter that restarts, counted on; and the length of a turn.

    `turns` numbers the turn of each part, such as its epoch; without it parts follow each other at their own lengths.

    >>> counter, starts = np.array([1.0, 2, 3, 1, 2, 3]), np.array([0, 3])
    >>> unrolled(counter, starts, 1.0, None, np.array([1.0, 2.0]))[0].tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    bounds: list[int] = [*starts.tolist(), len(counter)]
    spans = np.array([counter[a:b].max() - counter[a] + increment for a, b in pairwise(bounds)])
    turn = float(length) if length is not None else float(spans[:-1].max() if len(spans) > 1 else spans.max())
    if turns is not None:
        offsets = (turns - turns[0]) * turn
    else:
        offsets = np.concatenate([[0.0], np.cumsum(spans[:-1] if length is None else np.full(len(spans) - 1, turn))])
    sizes: NDArray[Any] = np.diff(bounds)
    return np.asarray(counter + np.repeat(offsets, sizes)), turn
