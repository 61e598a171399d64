"""What is said about one candidate drop: where it lies, and the ratios by which it is judged.

All ratios are free of the units of the loss and of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from eureka.curves.falls import Scale
from eureka.curves.grid import Array

NAMES = ("length", "noise", "trend", "share", "settled", "room", "kept", "lasting")
EXCEEDED = 0.4
"""A fall to a new low of this share of the drop ends the stretch that the drop is compared with."""
EXTEND = 0.3
"""The drop goes on while each further length brings at least this share of it."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A candidate, in indices of its grid."""

    past: int
    """Since when no comparable fall was seen."""
    onset: float
    end: float
    tenth: float
    """Where a tenth of the drop is done."""
    ninetieth: float
    """Where nine tenths are."""
    before: float
    after: float
    usual: float
    """The median loss of the past."""
    low: float
    """The lowest level seen before, over windows as long as that of `before` …"""
    lowest: int
    """… and where."""
    features: Array
    """The values of NAMES."""

    @property
    def size(self) -> float:
        return self.before - self.after


def rank(values: Array, share: float) -> float:
    """The value below which a `share` of all lie, without interpolation: much faster than `numpy.quantile` on short arrays.

    >>> rank(np.array([3.0, 1.0, 2.0]), 0.5)
    2.0
    """
    place = min(int(share * len(values)), len(values) - 1)
    return float(np.partition(values, place)[place])


def white_noise(y: Array) -> Array:
    """The standard deviation of the noise around each point, from second differences in 32 blocks.

    Second differences cancel any straight trend; their median absolute value ignores the few steep places.
    """
    second = np.abs(y[2:] - 2.0 * y[1:-1] + y[:-2]) / (0.6745 * np.sqrt(6.0))
    blocks = max(1, min(32, len(second) // 16))
    bounds = np.linspace(0, len(second), blocks + 1).astype(int)
    level = np.array([np.median(second[a:b]) for a, b in pairwise(bounds)])
    centre = 0.5 * (bounds[:-1] + bounds[1:]) + 1.0
    return np.asarray(np.interp(np.arange(len(y)), centre, level))


def smooth(y: Array, width: int) -> Array:
    """A centred running mean; shorter windows at the ends."""
    if width <= 1:
        return y
    total = np.concatenate([[0.0], np.cumsum(y - y[0])])
    at = np.arange(len(y))
    low, high = np.maximum(at - width // 2, 0), np.minimum(at + (width - 1) // 2 + 1, len(y))
    return np.asarray((total[high] - total[low]) / (high - low) + y[0])


def crossing(y: Array, level: float, start: int, *, forward: bool) -> float:
    """The (fractional) index where a falling `y` crosses `level`, searched from `start`."""
    if forward:
        below = np.flatnonzero(y[start:] <= level)
        if not len(below):
            return float(len(y) - 1)
        right = start + int(below[0])
    else:
        above = np.flatnonzero(y[: start + 1] > level)
        if not len(above):
            return 0.0
        right = int(above[-1]) + 1
    if right <= 0 or right >= len(y):
        return float(np.clip(right, 0, len(y) - 1))
    high, low = y[right - 1], y[right]
    return right - 1 + float(np.clip((high - level) / (high - low), 0.0, 1.0)) if high > low else float(right)


def extent(y: Array) -> float:
    """The range of a curve, but for a few extreme points."""
    low, high = np.quantile(y, [0.002, 0.998])
    return max(float(high - low), 1e-300)


def measure(y: Array, noise: Array, scale: Scale, index: int, reach: float, *, last: bool) -> Drop | None:
    """Everything about the candidate at `index` of `scale`; None if it has no extent."""
    fall, fresh = scale.fall, scale.fresh
    length, window, gap = scale.length, scale.window, scale.gap
    final = _final(fall, index, length)
    before, after = float(scale.before[index]), float(scale.after[final])
    size = before - after
    exceeded = np.flatnonzero(fresh[: max(index - length, 0)] > EXCEEDED * fall[index])
    past = int(exceeded[-1]) + length + 1 if len(exceeded) else 0
    gap_start, tail = index + window, final + window + gap
    low, high = max(past, gap_start - 2 * length), min(len(y), tail + window)
    curve = smooth(y[low:high], max(1, window // 2))
    middle = round(crossing(curve, before - 0.5 * size, max(gap_start - window - low, 0), forward=True))
    tenth = low + crossing(curve, before - 0.1 * size, middle, forward=False)
    ninetieth = low + crossing(curve, before - 0.9 * size, middle, forward=True)
    if not ninetieth > tenth:
        return None
    onset = low + crossing(curve, before - 0.05 * size, middle, forward=False)
    end = low + crossing(curve, before - 0.95 * size, middle, forward=True)
    duration = max(ninetieth - tenth, 1.0)
    stretch = y[past : max(past + 1, int(onset))]
    lowest = int(np.argmin(scale.before[: index + 1]))
    features = _features(
        y, noise, scale, index, past=past, onset=onset, ninetieth=ninetieth, size=size, duration=duration, reach=reach, last=last
    )
    return Drop(
        past=past, onset=onset, end=end, tenth=tenth, ninetieth=ninetieth, before=before, after=after,
        usual=rank(stretch, 0.5), low=float(scale.before[lowest]), lowest=lowest + window // 2, features=features,
    )  # fmt: skip


def _final(fall: Array, index: int, length: int) -> int:
    """The last index, in whole lengths after `index`, to which the drop goes on."""
    final = index
    while final + length < len(fall) and fall[final + length] > EXTEND * fall[index]:
        final += length
    return final


def _features(
    y: Array, noise: Array, scale: Scale, index: int,
    *, past: int, onset: float, ninetieth: float, size: float, duration: float, reach: float, last: bool,
) -> Array:  # fmt: skip
    """NAMES, each a logarithm of a ratio or a ratio within fixed limits."""
    fall, length = scale.fall, scale.length
    earlier = fall[past : max(index - length, past) + 1]
    typical = rank(earlier, 0.5)
    white = float(noise[past : int(onset) + 1].mean())
    tiny = 1e-9 * size
    spread = max(1.4826 * rank(np.abs(earlier - typical), 0.5), white * np.sqrt(2.0 / scale.window), tiny)
    stretch = y[past : max(int(onset), past + 2)]
    quarter = max(1, len(stretch) // 4)
    progress = abs(float(stretch[:quarter].mean() - stretch[-quarter:].mean()))
    tail = y[min(int(ninetieth + 0.5 * duration), len(y) - 1) : int(ninetieth + 1.5 * duration) + 1]
    further = (float(y[int(min(ninetieth, len(y) - 1))]) - float(tail.mean())) / size if len(tail) else 0.0
    room = (len(y) - ninetieth) / duration if last else 2.0
    step, error = kept(y, past, onset, ninetieth, duration)
    return np.array([
        _log((onset - past) / duration, 0.3, 6.0),
        _log((fall[index] - typical) / spread, 2.0, 20.0),
        np.clip(progress / size, 0.0, 1.0),
        _log(size / reach, 0.003, 0.3),
        np.clip(further, -0.3, 0.6),
        np.clip(room, 0.0, 1.0),
        np.clip(step / size, 0.0, 0.7),
        _log(step / max(error, white / 10.0, tiny), 1.0, 15.0),
    ])  # fmt: skip


def _log(ratio: float, low: float, high: float) -> float:
    return float(np.log(min(max(ratio, low), high)))


def kept(y: Array, past: int, onset: float, end: float, duration: float) -> tuple[float, float]:
    """How much of a drop lasts, and the standard error of that: the step between two lines of one slope, before and after it.

    The lines reach as far as the stretch before the drop, or as the curve goes on after it, up to ten durations. The error comes
    from the means of whole blocks, so that autocorrelated noise is not taken for many independent points; of the 16 parts of its
    variance, 4 are those of the two levels and 12 those of the slope between the middles of the two sides.
    """
    left, right = int(np.floor(onset)), int(np.ceil(end))
    reach = int(np.ceil(min(10.0 * duration, max(left - past, 2), max(len(y) - right, 2))))
    one, two = y[max(left - reach, 0) : left], y[right : right + reach]
    if len(one) < 2 or len(two) < 2:
        return 0.0, 0.0
    s, t = np.arange(len(one)) - len(one) + 1.0, np.arange(len(two)) + 0.0
    ds, dt = s - s.mean(), t - t.mean()
    slope = (ds @ one + dt @ two) / (ds @ ds + dt @ dt)
    a, b = one.mean() - slope * s.mean(), two.mean() - slope * t.mean()
    block = max(1, min(int(duration), len(one) // 3, len(two) // 3))
    means = np.concatenate([_blocks(one - slope * s - a, block), _blocks(two - slope * t - b, block)])
    return float(a - b), float(np.sqrt((means @ means) / max(len(means) - 3, 1) * 16.0 / len(means)))


def _blocks(values: Array, size: int) -> Array:
    whole = len(values) // size * size
    return np.asarray(values[:whole].reshape(-1, size).mean(axis=1))
