"""Why a drop happened: by itself, by a step of the learning rate, or by undoing a rise."""

from __future__ import annotations

import numpy as np

from eureka.curves.drops import Drop
from eureka.curves.grid import Array, Grid
from eureka.curves.moment import Kind
from eureka.curves.thresholds import THRESHOLDS


def kind_of(grid: Grid, drop: Drop, rates: tuple[Array, Array] | None) -> Kind:
    """The kind of a drop found on `grid`; `rates` are the steps and values of the learning rate."""
    if is_recovery(grid, drop):
        return "recovery"
    if rates is not None and follows_rate_cut(grid, drop, *rates):
        return "lr_step"
    return "eureka"


def is_recovery(grid: Grid, drop: Drop) -> bool:
    """Whether the drop only takes back a rise."""
    if drop.usual - drop.after < THRESHOLDS.undone * drop.size:
        return True
    if 0.0 < drop.after < THRESHOLDS.deep * drop.low and drop.low > THRESHOLDS.fresh * drop.size:
        return False
    elapsed = max(drop.onset - drop.lowest, 0.0)
    back = int(min(elapsed, drop.lowest // 2))
    slope = (float(grid.values[drop.lowest - back]) - drop.low) / back if back else 0.0
    allowed = THRESHOLDS.fresh + min(max(slope * elapsed / drop.size, 0.0), THRESHOLDS.trend)
    return drop.low - drop.after < allowed * drop.size


def follows_rate_cut(grid: Grid, drop: Drop, steps: Array, rate: Array) -> bool:
    """Whether the learning rate was cut at the drop, and far faster than just before it."""
    if len(steps) < 2:
        return False
    duration = (drop.ninetieth - drop.tenth + 1.0) * grid.width
    onset, end = grid.step(drop.onset), grid.step(drop.end)
    margin = max(duration, 2.0 * grid.width)
    now = _cut(steps, rate, onset - margin, end)
    earlier = _cut(steps, rate, onset - 2.0 * margin - (end - onset), onset - margin)
    return now > THRESHOLDS.rate_cut and now > THRESHOLDS.rate_sudden * earlier


def _cut(steps: Array, rate: Array, start: float, stop: float) -> float:
    """By which share the learning rate fell from `start` to `stop`."""
    first, final = np.interp([start, stop], steps, rate)
    return float((first - final) / first) if first > 0 else 0.0
