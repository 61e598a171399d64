"""From a raw log to an even grid: finite, sorted, one value a step, robust to single outliers; and its noise and range."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eureka.curves.thresholds import THRESHOLDS
from eureka.errors import RequestError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Grid:
    """A curve at evenly spaced steps: ``steps[i] = start + (i + ½)·width``."""

    start: float
    width: float
    values: Array
    last: bool = True
    """Whether the grid reaches the end of the log."""

    def step(self, index: float) -> float:
        """The step at a (fractional) index."""
        return self.start + (index + 0.5) * self.width

    def index(self, step: float) -> float:
        """The (fractional) index of a step, within the grid."""
        return float(np.clip((step - self.start) / self.width - 0.5, 0, len(self.values) - 1))


def clean(values: ArrayLike, steps: ArrayLike | None = None) -> tuple[Array, Array]:
    """Finite points in order of their steps; points that share a step are averaged.

    >>> steps, values = clean([3.0, float("nan"), 1.0, 2.0], [2, 1, 0, 0])
    >>> steps.tolist(), values.tolist()
    ([0.0, 2.0], [1.5, 3.0])
    """
    y = np.asarray(values, dtype=np.float64).ravel()
    if steps is None:
        x = np.arange(len(y), dtype=np.float64)
    else:
        x = np.asarray(steps, dtype=np.float64).ravel()
        if len(x) != len(y):
            raise RequestError(f"{len(y)} values but {len(x)} steps; give one step for each value.")
    finite = np.isfinite(x) & np.isfinite(y)
    if not finite.all():
        x, y = x[finite], y[finite]
    rise = np.diff(x)
    if len(x) and not (rise > 0).all():
        if not (rise >= 0).all():
            order = np.argsort(x, kind="stable")
            x, y = x[order], y[order]
        first = np.flatnonzero(np.concatenate([[True], np.diff(x) > 0]))
        y = np.add.reduceat(y, first) / np.diff(np.append(first, len(y)))
        x = x[first]
    return x, y


def repeats(y: Array) -> int:
    """How many times each value of a forward-filled log is repeated; 1 for any other log.

    Rounded values repeat as well, but not regularly.

    >>> repeats(np.repeat(np.arange(20.0), 5)), repeats(np.arange(20.0))
    (5, 1)
    """
    first = np.flatnonzero(np.concatenate([[True], np.diff(y) != 0.0]))
    if len(first) < THRESHOLDS.min_points or 2 * len(first) > len(y):
        return 1
    runs = np.diff(first)
    typical = int(np.median(runs))
    off = np.abs(runs / typical - np.round(runs / typical))
    return typical if float(np.mean((off <= 0.25) & (runs > 0.5 * typical))) >= THRESHOLDS.regular else 1


def changes(x: Array, y: Array) -> tuple[Array, Array]:
    """A forward-filled log at its changes; any other log as it is."""
    if repeats(y) == 1:
        return x, y
    changed = np.concatenate([[True], np.diff(y) != 0.0])
    return x[changed], y[changed]


def chunk_medians(x: Array, y: Array, size: int) -> tuple[Array, Array]:
    """Each `size` neighbours become their mean step and median value; the rest at the end likewise."""
    if size <= 1:
        return x, y
    whole = len(x) // size * size
    xs = x[:whole].reshape(-1, size).mean(axis=1)
    ys = np.median(y[:whole].reshape(-1, size), axis=1)
    if whole < len(x):
        xs, ys = np.append(xs, x[whole:].mean()), np.append(ys, np.median(y[whole:]))
    return xs, ys


def even_grid(x: Array, y: Array, size: int = THRESHOLDS.grid_points, *, last: bool = True) -> Grid:
    """Average a clean curve over `size` even bins (fewer if it has fewer points); empty bins are interpolated.

    Bins are no narrower than the usual distance of points: what is interpolated has no noise, and would look like a clean fall.
    """
    bins = min(size, len(x), usual_points(x))
    half = 0.5 * (x[-1] - x[0]) / (bins - 1) if bins < size or bins == len(x) else 0.0  # so that evenly logged points sit mid-bin
    start, stop = x[0] - half, x[-1] + half
    width = (stop - start) / bins
    x, y = chunk_medians(x, y, len(x) // (4 * bins) if bins == size else 1)
    cell = np.minimum(((x - start) / width + 1e-9).astype(np.int64), bins - 1)  # rounding must not move points on an edge
    count = np.bincount(cell, minlength=bins)
    total = np.bincount(cell, weights=y, minlength=bins)
    centre = np.bincount(cell, weights=x, minlength=bins)
    full = count > 0
    at = start + (np.arange(bins) + 0.5) * width
    mean_x, mean_y = centre[full] / count[full], total[full] / count[full]
    filled = mean_y if full.all() else np.interp(at, mean_x, mean_y)
    return Grid(start=float(start), width=float(width), values=without_outliers(filled), last=last)


def usual_points(x: Array) -> int:
    """How many points a log would have at its usual distance, which at most a quarter of its time is below; enough to be judged.

    >>> usual_points(np.arange(100.0)), usual_points(np.concatenate([np.arange(100.0), np.arange(100.0, 10_000.0, 100.0)]))
    (100, 100)
    """
    gaps = np.diff(x)
    if not len(gaps) or gaps.max() <= 1.5 * gaps.min():  # nearly all logs: no need to sort
        return len(x)
    gaps = np.sort(gaps)
    usual = gaps[np.searchsorted(np.cumsum(gaps), THRESHOLDS.usual * (x[-1] - x[0]))]
    return max(round(float((x[-1] - x[0]) / usual)) + 1, min(len(x), THRESHOLDS.min_points))


def without_outliers(y: Array) -> Array:
    """Single points far from the median of their five neighbours take that median (a Hampel filter).

    >>> without_outliers(np.array([1.0, 1.1, 9.0, 1.0, 1.1, 1.0, 0.9])).tolist()
    [1.0, 1.1, 1.1, 1.0, 1.1, 1.0, 0.9]
    """
    if len(y) < 5:
        return y
    padded = np.pad(y, 2, mode="edge")
    median = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    residual = np.abs(y - median)
    typical = np.quantile(residual, 0.8)  # not the median: that is zero on nearly smooth curves
    far = residual > max(6.0 * typical, 1e-3 * np.ptp(y))
    far[:2] = far[-2:] = False  # the window is not centred there
    return np.where(far, median, y)


def grids(x: Array, y: Array, size: int = THRESHOLDS.grid_points) -> list[Grid]:
    """The whole curve, then its first quarter, sixteenth and so on, each on a grid of its own, while that shows more detail.

    Early in a long run things happen at a finer scale than one even grid can show.
    """
    found = [even_grid(x, y, size)]
    span = x[-1] - x[0]
    while True:
        span /= 4.0
        inside = int(np.searchsorted(x, x[0] + span, side="right"))
        if inside < 64 or span / min(size, inside) >= 0.6 * found[-1].width:
            return found
        grid = even_grid(x[:inside], y[:inside], size, last=False)
        if grid.width < 0.6 * found[-1].width:
            found.append(grid)


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


def extent(y: Array) -> float:
    """The range of a curve, but for a few extreme points."""
    low, high = np.quantile(y, [0.002, 0.998])
    return max(float(high - low), 1e-300)


def later_extent(y: Array) -> float:
    """The range of a curve; a huge first fall counts for no more than a few times the range after it."""
    begun = max(1, int(THRESHOLDS.first_part * len(y)))
    return min(extent(y), THRESHOLDS.first_fall * extent(y[begun:]))


def smooth(y: Array, width: int) -> Array:
    """A centred running mean; shorter windows at the ends."""
    if width <= 1:
        return y
    total = np.concatenate([[0.0], np.cumsum(y - y[0])])
    at = np.arange(len(y))
    low, high = np.maximum(at - width // 2, 0), np.minimum(at + (width - 1) // 2 + 1, len(y))
    return np.asarray((total[high] - total[low]) / (high - low) + y[0])
