"""What a plateau is, and the plateaus of a curve, whether or not anything ended them.

**The rule.** A curve is on a plateau when it has hardly moved over the last quarter of its time (`stretch`), measured by a line
through it. Hardly means

- no more than a small share of what it fell over the half before, beyond doubt of the noise; or
- nothing that could be told from the noise, over the last three quarters, where the noise would show a small share of what the
  curve fell in all (or much less than itself, if the curve never fell).

A smooth descent slows down as well, but its last quarter still brings more: a power law t⁻ᵖ an eighth of the half before if
p = 1, a fifth if p = ½. The rule looks only back, so that it can be used while a run goes on. A plateau ends where the curve
leaves its level by more than it could by that slow drift.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from eureka.curves.detector import detect
from eureka.curves.grid import Array, changes, clean, even_grid, extent, smooth
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.scale import moment_times_two_to, tame, times_two_to
from eureka.curves.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Rest:
    """A plateau that reaches to the last of some points."""

    count: int
    """How many of the last points were looked at."""
    level: float
    tolerance: float
    """How far from the level its own slow drift may lead."""
    noise: float
    """The standard deviation of a point."""

    def is_left_by(self, y: Array) -> bool:
        """Whether the latest of the points up to now are elsewhere."""
        latest = y[-max(2, len(y) // 16) :]
        doubt = THRESHOLDS.left * self.noise / math.sqrt(len(latest))
        return abs(float(latest.mean()) - self.level) > 3.0 * self.tolerance + doubt


def rest_at_end(y: Array, since: int = 0) -> Rest | None:
    """The plateau on which evenly spaced values end, by the rule above; it begins at index `since` at the earliest.

    >>> t = np.arange(400.0)
    >>> rest_at_end(2.0 * np.exp(-t / 20.0)) is not None, rest_at_end(np.sqrt(1.0 / (1.0 + t))) is not None
    (True, False)
    """
    size, tail = len(y), max(len(y) // 4, 4)
    if size < THRESHOLDS.rest_points or size - tail < since:
        return None
    last, half = y[-tail:], y[size - 3 * tail : size - tail]
    change, error = trend(last)
    level = float(np.median(last))
    width = max(tail // 2, 1)
    fell = float(half[:width].mean() - half[-width:].mean())
    doubt = error / math.sqrt(6.0)  # of a mean of `width` points, as that of a trend over `tail` points
    share, noise = THRESHOLDS.flat, error * math.sqrt(tail / 12.0)
    if fell > 4.0 * doubt and abs(change) + error <= share * fell:
        return Rest(tail, level, share * fell, noise)
    if size - 3 * tail < since:
        return None
    long, long_error = trend(y[size - 3 * tail :])
    measured = long_error <= max(share * (extent(y) - 4.0 * noise), THRESHOLDS.rest_measured * noise)
    if measured and abs(change) <= 2.0 * error and abs(long) <= 2.0 * long_error:
        return Rest(tail, level, long_error, noise)
    return None


def trend(y: Array) -> tuple[float, float]:
    """How far a line through the values falls, and the standard error of that; neighbours that err alike count as fewer."""
    t = np.arange(len(y)) - 0.5 * (len(y) - 1)
    slope = float(t @ y) / float(t @ t)
    rest = y - y.mean() - slope * t
    power = float(rest @ rest)
    alike = float(np.clip(rest[1:] @ rest[:-1] / power, 0.0, 0.9)) if power > 0.0 else 0.0
    spread = math.sqrt(power / max(len(y) - 2, 1) * (1.0 + alike) / (1.0 - alike))
    tiny = THRESHOLDS.rounding * float(np.abs(y).max())  # of each point, so that a constant is as sure as noise of that size
    return -slope * len(y), (spread + tiny) * math.sqrt(12.0 / len(y))


def find_plateaus(
    values: ArrayLike, steps: ArrayLike | None = None, *, rising: bool = False, moments: list[EurekaMoment] | None = None
) -> list[Plateau]:
    """All plateaus of a curve in order: those that an abrupt drop ended, and every other stretch that the rule calls one.

    Args:
        values: the curve, usually a loss
        steps: the step of each value; 0, 1, 2, … unless given
        rising: more is better
        moments: those of `detect`, if they are known already

    >>> t = np.arange(1000)
    >>> first, last = find_plateaus(2.0 - 1.8 / (1.0 + np.exp(-(t - 600) / 8.0)))
    >>> round(first.level, 1), round(last.level, 1), 560 < first.end < 600 < last.start < 640
    (2.0, 0.2, True)
    """
    tamed, power = tame(values)
    if power:
        known = None if moments is None else [moment_times_two_to(moment, power) for moment in moments]
        return [times_two_to(one, -power) for one in find_plateaus(tamed, steps, rising=rising, moments=known)]
    x, y = changes(*clean(tamed, steps))
    if len(x) < THRESHOLDS.min_points:
        return []
    if np.ptp(y) <= THRESHOLDS.rounding * float(np.abs(y).max()):  # without noise nothing is to be told from it
        return [Plateau(start=float(x[0]), end=float(x[-1]), level=float(np.median(y)))]
    if moments is None:
        moments = detect(y, x, rising=rising)
    ended = [moment for moment in moments if moment.kind != "recovery"]
    grid = even_grid(x, -y if rising else y, THRESHOLDS.plateau_points)
    others = []
    for a, b in flat_stretches(grid.values):
        start, end = _without(grid.step(a), grid.step(b), ended)
        inside = y[(x >= start) & (x <= end)]
        if len(inside) and end - start >= 0.5 * (b - a) * grid.width:
            others.append(Plateau(start=start, end=end, level=float(np.median(inside))))
    return sorted([_since_the_last(moment, ended, x, y) for moment in ended] + others, key=lambda plateau: plateau.start)


def _since_the_last(moment: EurekaMoment, moments: list[EurekaMoment], x: Array, y: Array) -> Plateau:
    """The plateau that a moment ended. One that another moment interrupted, as in a dip, begins after that one."""
    plateau = moment.plateau
    start = max([plateau.start, *(one.end for one in moments if plateau.start < one.end < plateau.end)])
    inside = y[(x >= start) & (x <= plateau.end)]
    return plateau if start == plateau.start else Plateau(start=start, end=plateau.end, level=float(np.median(inside)))


def _without(start: float, end: float, moments: list[EurekaMoment]) -> tuple[float, float]:
    """What is left of a stretch beside the moments and the plateaus that they ended."""
    for moment in moments:
        if start < moment.end < end:
            start = moment.end
        elif moment.plateau.start < end <= moment.end:
            end = max(moment.plateau.start, start)
    return start, end


def flat_stretches(y: Array) -> list[tuple[int, int]]:
    """First and last indices of the plateaus of evenly spaced values: the rule at one time after the other."""
    found: list[tuple[int, int]] = []
    size, rest, entered, since = THRESHOLDS.rest_points, None, 0, 0
    while size <= len(y):
        if rest is None:
            rest, entered = rest_at_end(y[:size], since), size
        elif rest.is_left_by(y[:size]):
            found.append(_bounds(y[:size], entered, rest, found))
            rest, since = None, size - max(2, size // 16)
        if size == len(y):
            break
        size = min(len(y), max(size + 1, int(size * THRESHOLDS.rest_every)))
    if rest is not None:
        found.append(_bounds(y, entered, rest, found))
    return [(a, b) for a, b in found if b > a + 1 and b - a + 1 >= _least_length(y, a, b)]


def _bounds(y: Array, entered: int, rest: Rest, found: list[tuple[int, int]]) -> tuple[int, int]:
    """From where on, and until where, the curve was near the level of a plateau that was noticed at `entered` points."""
    middle = entered - rest.count // 2
    curve = smooth(y, max(1, rest.count // 4))
    doubt = THRESHOLDS.left * rest.noise / math.sqrt(max(1, rest.count // 4))
    away = np.flatnonzero(np.abs(curve - rest.level) > 3.0 * rest.tolerance + doubt)
    before, after = away[away < middle], away[away > middle]
    start = int(before[-1]) + 1 if len(before) else 0
    return max(start, found[-1][1] + 1 if found else 0), int(after[0]) - 1 if len(after) else len(y) - 1


def _least_length(y: Array, a: int, b: int) -> float:
    """How many points a plateau from `a` to `b` must have, with what is known of the rest of the curve."""
    slow = THRESHOLDS.plateau_slow * abs(trend(y[a : b + 1])[0]) / extent(y) * len(y)
    return max(THRESHOLDS.plateau_long * (b + 1), THRESHOLDS.plateau_least * len(y), 8, slow)
