"""Candidate drops: the falls of a curve at every scale, and those of them that stand out from what came before.

At a scale of gap `m` and window `h` the fall at index i compares two means with a gap between them::

    before[i] = mean y[i−h : i]      after[i] = mean y[i+m : i+m+h]      fall[i] = before[i] − after[i]

A drop no longer than the gap is seen at its full height, a slow trend only by what it brings in m + h. `fresh[i]` counts only
what goes below every earlier level, so that the return from a spike is no fall: fresh[i] = min(before[:i+1]) − after[i].
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eureka.curves.grid import Array
from eureka.curves.thresholds import THRESHOLDS


@dataclass(frozen=True)
class Scale:
    """All falls of a curve at one scale; index i here is index i + window of the curve."""

    gap: int
    window: int
    before: Array
    after: Array
    fall: Array
    fresh: Array

    @property
    def length(self) -> int:
        return self.gap + self.window


def scales(size: int) -> list[tuple[int, int]]:
    """Gaps and windows, about √2 apart, up to a third of the curve.

    >>> scales(40)
    [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2), (6, 3), (8, 4), (11, 6)]
    """
    gaps = [0, 1, 2, 3]
    while gaps[-1] <= size / 3:
        gaps.append(max(round(2.0 ** (len(gaps) / 2)), gaps[-1] + 1))
    return [(gap, max(1, (gap + 1) // 2)) for gap in gaps if gap <= size / 3]


def falls_at(y: Array, gap: int, window: int) -> Scale:
    """The falls of `y` at one scale, in linear time."""
    centre = y.mean()  # keeps the running sum small, and so exact
    total = np.concatenate([[0.0], np.cumsum(y - centre)])
    means = (total[window:] - total[:-window]) / window + centre
    offset = gap + window
    before, after = means[:-offset], means[offset:]
    fresh = np.minimum.accumulate(before) - after
    return Scale(gap=gap, window=window, before=before, after=after, fall=before - after, fresh=fresh)


def find_candidates(scale: Scale, noise: Array) -> list[int]:
    """Indices of falls that are the greatest of their surroundings and exceed the noise and every recent fall to a new low."""
    fall, length = scale.fall, scale.length
    size, back = len(fall), int(np.ceil(THRESHOLDS.look_back * length))
    if size < 3:
        return []
    reach = max(1, length // 2)
    padded = np.pad(fall, reach, constant_values=-np.inf)
    peak = (fall > 0) & (fall >= sliding_max(padded, 2 * reach + 1)[:size])
    index = np.flatnonzero(peak)
    index = index[index + scale.window >= length + back]  # there must be a past to stand out from
    if not len(index):
        return []
    earlier = sliding_max(np.maximum(scale.fresh, 0.0), back)
    past = earlier[np.maximum(index - length - back + 1, 0)]
    index = index[fall[index] > np.maximum(THRESHOLDS.stands_out * past, _noise_limit(scale, noise, index))]
    clear = fall[index] / (noise[index + scale.window] + 0.01 * fall.max())
    return [int(i) for i in index[np.argsort(-clear)[: THRESHOLDS.candidates_per_scale]]]


def _noise_limit(scale: Scale, noise: Array, index: NDArray[np.intp]) -> Array:
    """The fall that noise, slow wander or rounding could bring at each index."""
    white = THRESHOLDS.white_noise * np.sqrt(2.0 / scale.window) * noise[index + scale.window]
    wander = np.median(np.abs(scale.fall - np.median(scale.fall)))
    limit = np.maximum(white, THRESHOLDS.wander * 1.4826 * wander)
    return np.asarray(np.maximum(limit, THRESHOLDS.rounding * float(np.abs(scale.before).max())))


def sliding_max(values: Array, width: int) -> Array:
    """out[i] = max values[i : i+width], by doubling; as long as `values`, the last windows being shorter.

    `scipy.ndimage.maximum_filter1d` gives the same, but importing it takes longer than all else that ``eureka detect`` does.

    >>> sliding_max(np.array([1.0, 3.0, 2.0, 0.0]), 2).tolist()
    [3.0, 3.0, 2.0, 0.0]
    """
    out, covered = values.copy(), 1
    while covered < width:
        shift = min(covered, width - covered)
        if shift < len(out):
            out[:-shift] = np.maximum(out[:-shift], out[shift:])
        covered += shift
    return out
