"""One candidate drop: since when the loss sat before it, where it begins and ends, and by how much it falls."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eureka.curves.candidates import Scale
from eureka.curves.confidence import features_of, upper_median
from eureka.curves.grid import Array, smooth
from eureka.curves.thresholds import THRESHOLDS


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A candidate, in indices of its grid."""

    past: int
    """Since when there was no comparable fall."""
    onset: float
    end: float
    tenth: float
    """Where a tenth of the drop is done."""
    ninetieth: float
    """Where nine tenths are done."""
    before: float
    after: float
    usual: float
    """The median loss of the past."""
    low: float
    """The lowest mean before the drop, over windows as long as that of `before`."""
    lowest: int
    """Where that lowest mean is."""
    features: Array
    """What the confidence is computed from, in the order of `eureka.curves.confidence.FEATURES`."""

    @property
    def size(self) -> float:
        return self.before - self.after


def measure_drop(y: Array, noise: Array, scale: Scale, index: int, reach: float, *, last: bool) -> Drop | None:
    """Place and size of the candidate at `index` of `scale`; None if it has no extent.

    noise   the standard deviation of the noise at each point of `y`
    reach   the range of the curve, but for a huge first fall
    last    whether the log ends where `y` ends
    """
    length, window = scale.length, scale.window
    final = _last_index(scale.fall, index, length)
    before, after = float(scale.before[index]), float(scale.after[final])
    size = before - after
    exceeded = np.flatnonzero(scale.fresh[: max(index - length, 0)] > THRESHOLDS.exceeded * scale.fall[index])
    past = int(exceeded[-1]) + length if len(exceeded) else 0
    start, tail = index + window, final + length
    low, high = max(past, start - 2 * length), min(len(y), tail + window)
    curve = smooth(y[low:high], max(1, window // 2))
    middle = round(crossing(curve, before - 0.5 * size, max(start - window - low, 0), forward=True))
    tenth = low + crossing(curve, before - 0.1 * size, middle, forward=False)
    ninetieth = low + crossing(curve, before - 0.9 * size, middle, forward=True)
    if not ninetieth > tenth:
        return None
    onset = low + crossing(curve, before - 0.05 * size, middle, forward=False)
    end = low + crossing(curve, before - 0.95 * size, middle, forward=True)
    stretch = y[past : max(past + 1, int(onset))]
    lowest = int(np.argmin(scale.before[: index + 1]))
    features = features_of(
        y, noise, scale, index, past=past, onset=onset, tenth=tenth, ninetieth=ninetieth, size=size, reach=reach, last=last
    )
    return Drop(
        past=past, onset=onset, end=end, tenth=tenth, ninetieth=ninetieth, before=before, after=after,
        usual=upper_median(stretch), low=float(scale.before[lowest]), lowest=lowest + window // 2, features=features,
    )  # fmt: skip


def _last_index(fall: Array, index: int, length: int) -> int:
    """The last index, in whole lengths after `index`, to which the drop goes on."""
    final = index
    while final + length < len(fall) and fall[final + length] > THRESHOLDS.extend * fall[index]:
        final += length
    return final


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
