"""Why a drop happened: by itself, or for a reason that is known or can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eureka.curves.drops import Drop
from eureka.curves.grid import Array, Grid
from eureka.curves.moment import Kind
from eureka.curves.steepest import DropFit
from eureka.curves.thresholds import THRESHOLDS


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known of a curve besides its values."""

    rates: tuple[Array, Array] | None = None
    """Steps and values of the learning rate."""
    epochs: tuple[Array, Array] | None = None
    """Steps, and the epoch at each."""
    floor: float | None = None
    """The lowest loss that the task allows."""


def kind_of(grid: Grid, drop: Drop, known: Known, fit: DropFit) -> Kind:
    """The kind of a drop found on `grid`, with its fit."""
    if is_recovery(grid, drop):
        return "recovery"
    if known.rates is not None and follows_rate_cut(grid, drop, *known.rates):
        return "lr_step"
    if known.floor is not None and known.floor - drop.after > THRESHOLDS.leak * drop.size:
        return "leak"
    if known.epochs is not None and begins_epoch(grid, drop, fit, *known.epochs):
        return "epoch_boundary"
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


def looks_like_rate_step(grid: Grid, drop: Drop, fit: DropFit) -> bool:
    """Whether a drop has the shape of a rate step: steepest as it begins, then settling; or sudden, and calmer from then on.

    What leaves a plateau by itself speeds up first, and its noise shrinks no more than the loss does.
    """
    duration, tail = drop.ninetieth - drop.tenth, (1.0 - fit.skew) * fit.width
    kinked = fit.skew < THRESHOLDS.kink and fit.evidence > THRESHOLDS.fit_evidence
    if kinked and THRESHOLDS.kink_tail < tail < duration:  # a longer tail is not seen to settle
        return True
    left, right = int(drop.onset), int(np.ceil(drop.ninetieth)) + 1
    before, after = grid.values[max(drop.past, left - 200) : left], grid.values[right : right + 200]
    if fit.width > THRESHOLDS.sudden or min(len(before), len(after)) < 8 or drop.after <= 0.0:
        return False
    return _jitter(after) / drop.after < THRESHOLDS.calmer * _jitter(before) / drop.before


def _jitter(values: Array) -> float:
    return float(np.abs(np.diff(values, 2)).mean())


def _cut(steps: Array, rate: Array, start: float, stop: float) -> float:
    """By which share the learning rate fell from `start` to `stop`."""
    first, final = np.interp([start, stop], steps, rate)
    return float((first - final) / first) if first > 0 else 0.0


def begins_epoch(grid: Grid, drop: Drop, fit: DropFit, steps: Array, epochs: Array) -> bool:
    """Whether a drop that is short against an epoch comes where one begins, in a log that shows several points of an epoch.

    Where a drop is small beside the noise, its fit says more exactly than its measured tenths where it is.
    """
    count = float(epochs[-1] - epochs[0]) if len(steps) > 1 else 0.0
    if count <= 0.0 or THRESHOLDS.epoch_points * count > len(grid.values) * (1.0 if grid.last else np.inf):
        return False
    near = THRESHOLDS.epoch_near + 1.5 * grid.width * count / float(steps[-1] - steps[0])
    tenth, ninetieth = _epochs_at(grid, (drop.tenth, drop.ninetieth), steps, epochs)
    if ninetieth - tenth > THRESHOLDS.epoch_short + near:
        return False
    measured = _epochs_at(grid, (drop.onset, drop.tenth, 0.5 * (drop.tenth + drop.ninetieth)), steps, epochs)
    fitted = _epochs_at(grid, (fit.at(0.05), fit.at(0.1), fit.at(0.5)), steps, epochs)
    return any(_spans_whole(onset, tenth, middle, near) for onset, tenth, middle in (measured, fitted))


def _epochs_at(grid: Grid, indices: Sequence[float], steps: Array, epochs: Array) -> list[float]:
    return [float(epoch) for epoch in np.interp([grid.step(index) for index in indices], steps, epochs)]


def _spans_whole(onset: float, tenth: float, middle: float, near: float) -> bool:
    """Whether a whole epoch begins within the first half of a drop."""
    whole = round(tenth)
    return whole >= 1 and onset - near <= whole <= middle + near
