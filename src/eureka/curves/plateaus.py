"""Find the plateaus of a loss curve, whether or not anything ended them."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from eureka.curves.candidates import sliding_max
from eureka.curves.detector import detect
from eureka.curves.grid import Array, clean, even_grid, extent, smooth, white_noise
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.thresholds import THRESHOLDS


def find_plateaus(
    values: ArrayLike, steps: ArrayLike | None = None, *, moments: list[EurekaMoment] | None = None
) -> list[Plateau]:
    """All plateaus of a curve in order: those that an abrupt drop ended, and every other long flat stretch.

    `moments` are those of `detect`, if they are known already.

    >>> t = np.arange(1000)
    >>> first, last = find_plateaus(2.0 - 1.8 / (1.0 + np.exp(-(t - 600) / 8.0)))
    >>> round(first.level, 1), round(last.level, 1), 560 < first.end < 600 < last.start < 640
    (2.0, 0.2, True)
    """
    x, y = clean(values, steps)
    if len(x) < THRESHOLDS.min_points:
        return []
    if moments is None:
        moments = detect(y, x)
    ended = [moment for moment in moments if moment.kind != "recovery"]
    grid = even_grid(x, y, THRESHOLDS.plateau_points)
    free, start = [], 0
    for taken in sorted(ended, key=lambda moment: moment.plateau.start):
        free.append((start, round(grid.index(taken.plateau.start))))
        start = max(start, round(grid.index(taken.end)) + 1)
    others = [
        Plateau(start=grid.step(a), end=grid.step(b), level=float(np.median(grid.values[a : b + 1])))
        for a, b in flat_stretches(grid.values, [*free, (start, len(grid.values))])
    ]
    return sorted([moment.plateau for moment in ended] + others, key=lambda plateau: plateau.start)


def flat_stretches(y: Array, parts: list[tuple[int, int]] | None = None) -> list[tuple[int, int]]:
    """First and last indices of the flat stretches of each part: its longest, then the longest left and right of that."""
    width = max(1, len(y) // 64)
    tolerance = THRESHOLDS.flat * extent(y) + 6.0 * float(np.median(white_noise(y))) / np.sqrt(width)
    curve = smooth(y, width)
    found, todo = [], list(parts or [(0, len(y))])
    while todo:
        low, high = todo.pop()
        if high - low < 8:
            continue
        a, b = longest_flat_stretch(curve[low:high], tolerance)
        a, b = a + low, b + low
        if b - a + 1 >= _least_length(y, a, b):
            found.append((a, b))
            apart = (b - a) // 4  # a slow decline is one plateau and its surroundings, not many steps
            todo += [(low, a - apart), (b + 1 + apart, high)]
    return sorted(found)


def _least_length(y: Array, a: int, b: int) -> float:
    """How many points a flat stretch from `a` to `b` must have to be a plateau."""
    slow = THRESHOLDS.plateau_slow * _change(y[a : b + 1]) / extent(y) * len(y)
    return max(THRESHOLDS.plateau_long * (b + 1), THRESHOLDS.plateau_least * len(y), 8, slow)


def _change(y: Array) -> float:
    """How far a line through a stretch falls or rises."""
    quarter = max(1, len(y) // 4)
    return abs(float(y[:quarter].mean() - y[-quarter:].mean())) * 4.0 / 3.0


def longest_flat_stretch(y: Array, tolerance: float) -> tuple[int, int]:
    """First and last index of the first longest stretch whose greatest and smallest value differ by at most `tolerance`.

    A part of a flat stretch is flat, so its length can be found by bisection.
    """
    low, high = 1, len(y)
    while low < high:
        width = (low + high + 1) // 2
        if (_ranges(y, width) <= tolerance).any():
            low = width
        else:
            high = width - 1
    start = int(np.argmax(_ranges(y, low) <= tolerance))
    return start, start + low - 1


def _ranges(y: Array, width: int) -> Array:
    """Greatest less smallest value of every stretch of `width` points."""
    whole = len(y) - width + 1
    return np.asarray(sliding_max(y, width)[:whole] + sliding_max(-y, width)[:whole])
