"""Find the plateaus of a loss curve, whether or not anything ended them."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import ArrayLike

from eureka.curves.detector import FEWEST, detect
from eureka.curves.features import extent, smooth, white_noise
from eureka.curves.grid import Array, clean, even_grid
from eureka.curves.moment import EurekaMoment, Plateau

POINTS = 512
"""A plateau is long, so a coarse grid shows it."""
FLAT = 0.04
"""On a plateau the smoothed loss moves by no more than this share of the range of the curve, and the noise."""
LONG = 0.2
"""A plateau takes at least this share of the time until its end …"""
LEAST = 0.03
"""… and this share of the whole log …"""
SLOW = 3.0
"""… and so many times the share that the change on it has in the range: a straight decline has no plateau."""


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
    if len(x) < FEWEST:
        return []
    if moments is None:
        moments = detect(y, x)
    ended = [moment for moment in moments if moment.kind != "recovery"]
    grid = even_grid(x, y, POINTS)
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
    """First and last indices of the longest flat stretch of each part, then of the longest ones left and right of it …"""
    width = max(1, len(y) // 64)
    tolerance = FLAT * extent(y) + 6.0 * float(np.median(white_noise(y))) / np.sqrt(width)
    curve = smooth(y, width)
    found, todo = [], list(parts or [(0, len(y))])
    while todo:
        low, high = todo.pop()
        if high - low < 8:
            continue
        a, b = _longest(curve[low:high], tolerance)
        a, b = a + low, b + low
        if b - a + 1 >= max(LONG * (b + 1), LEAST * len(y), 8, SLOW * _change(y[a : b + 1]) / extent(y) * len(y)):
            found.append((a, b))
            apart = (b - a) // 4  # a slow decline is one plateau and its surroundings, not many steps
            todo += [(low, a - apart), (b + 1 + apart, high)]
    return sorted(found)


def _change(y: Array) -> float:
    """How far a line through a stretch falls or rises."""
    quarter = max(1, len(y) // 4)
    return abs(float(y[:quarter].mean() - y[-quarter:].mean())) * 4.0 / 3.0


def _longest(y: Array, tolerance: float) -> tuple[int, int]:
    """The longest stretch whose greatest and smallest value differ by no more than `tolerance` (two monotone queues)."""
    high: deque[int] = deque()
    low: deque[int] = deque()
    best, start = (0, -1), 0
    for i, value in enumerate(y):
        while high and y[high[-1]] <= value:
            high.pop()
        while low and y[low[-1]] >= value:
            low.pop()
        high.append(i)
        low.append(i)
        while y[high[0]] - y[low[0]] > tolerance:
            start = min(high[0], low[0]) + 1
            while high[0] < start:
                high.popleft()
            while low[0] < start:
                low.popleft()
        if i - start > best[1] - best[0]:
            best = (start, i)
    return best
