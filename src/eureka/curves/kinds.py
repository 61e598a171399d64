"""Why a drop happened: by itself, by a step of the learning rate, or by undoing a rise."""

from __future__ import annotations

import numpy as np

from eureka.curves.features import Drop
from eureka.curves.grid import Array, Grid
from eureka.curves.moment import Kind

UNDONE = 0.35
"""A drop is a recovery if the usual level before it leaves less than this share of it …"""
FRESH = 0.15
"""… or if less than this share goes below anything seen before, and below where the trend of then would have led."""
TREND = 0.5
"""That trend counts for at most this share: nobody knows that it would have gone on."""
DEEP = 0.2
"""A loss that falls to this share of the lowest seen before has done more than recover."""
CUT = 0.25
"""A learning rate cut by at least this share can explain a drop …"""
SUDDEN = 2.0
"""… if it fell this many times more than over the same time just before."""


def kind_of(grid: Grid, drop: Drop, rates: tuple[Array, Array] | None) -> Kind:
    """The kind of a drop found on `grid`; `rates` are the steps and values of the learning rate."""
    if undoes(grid, drop):
        return "recovery"
    if rates is not None and explained(grid, drop, *rates):
        return "lr_step"
    return "eureka"


def undoes(grid: Grid, drop: Drop) -> bool:
    """Whether the drop only takes back a rise."""
    if drop.usual - drop.after < UNDONE * drop.size:
        return True
    if 0.0 < drop.after < DEEP * drop.low and drop.low > FRESH * drop.size:
        return False
    elapsed = max(drop.onset - drop.lowest, 0.0)
    back = int(min(elapsed, drop.lowest // 2))
    slope = (float(grid.values[drop.lowest - back]) - drop.low) / back if back else 0.0
    allowed = FRESH + min(max(slope * elapsed / drop.size, 0.0), TREND)
    return drop.low - drop.after < allowed * drop.size


def explained(grid: Grid, drop: Drop, steps: Array, rate: Array) -> bool:
    """Whether the learning rate was cut at the drop, and far faster than just before it."""
    if len(steps) < 2:
        return False
    duration = (drop.ninetieth - drop.tenth + 1.0) * grid.width
    onset, end = grid.step(drop.onset), grid.step(drop.end)
    margin = max(duration, 2.0 * grid.width)
    now = _cut(steps, rate, onset - margin, end)
    earlier = _cut(steps, rate, onset - 2.0 * margin - (end - onset), onset - margin)
    return now > CUT and now > SUDDEN * earlier


def _cut(steps: Array, rate: Array, start: float, stop: float) -> float:
    """By which share the learning rate fell from `start` to `stop`."""
    first, final = np.interp([start, stop], steps, rate)
    return float((first - final) / first) if first > 0 else 0.0
