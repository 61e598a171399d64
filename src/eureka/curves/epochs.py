"""How long an epoch is, if a curve shows it: a training loss that is memorised falls each time its data begin anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eureka.curves.candidates import falls_at
from eureka.curves.confidence import upper_median
from eureka.curves.drops import Drop
from eureka.curves.grid import Array, Grid
from eureka.curves.steepest import fit_drop
from eureka.curves.thresholds import THRESHOLDS

Place = tuple[float, float]
"""Where a drop begins, and how long it takes."""


def epochs_of(grid: Grid, drops: Sequence[Drop]) -> tuple[Array, Array] | None:
    """The first and the last step with their epochs, if the drops of a curve come as epochs begin.

    Nearly all drops must begin a whole epoch, and half of the whole epochs must show a fall, at least three; two are enough if
    the log ends with the third epoch.
    """
    size = len(grid.values)
    origin = -0.5 - grid.start / grid.width  # the index of step 0
    if not -0.05 * size < origin <= 0.5:
        origin = -0.5
    fits = [fit_drop(grid.values, drop.tenth, drop.ninetieth, drop.past) for drop in drops]
    places = [(fit.at(0.1) - origin, fit.at(0.9) - fit.at(0.1)) for fit in fits]
    least = THRESHOLDS.epoch_size * max((drop.size for drop in drops), default=0.0)
    lengths = {at / count for at, _ in places for count in range(1, THRESHOLDS.epoch_most)}
    fitting = [one for one in lengths if one >= THRESHOLDS.epoch_length and _fits(grid.values, places, origin, one, least)]
    if not fitting:
        return None
    length = max(fitting, key=lambda one: (len(_begun(places, one)), one))
    ends = np.array([origin, size - 0.5])
    return grid.start + (ends + 0.5) * grid.width, (ends - origin) / length


def falls_with(grid: Grid, drops: Sequence[Drop], epochs: tuple[Array, Array]) -> bool:
    """Whether a curve falls as its epochs begin, at two or more of them; also if there are too few epochs or points to tell."""
    steps, counts = epochs
    whole = np.arange(np.floor(counts[0]) + 1, counts[-1])
    at = (np.interp(whole, counts, steps) - grid.start) / grid.width - 0.5
    if len(whole) < 3 or np.diff(at).min() < THRESHOLDS.epoch_points or np.any(np.diff(counts) < 0):
        return True
    least = THRESHOLDS.epoch_size * max((drop.size for drop in drops), default=0.0)
    return len(_clear(grid.values, at.tolist(), float(np.median(np.diff(at))), least)) >= 2


def _fits(y: Array, places: Sequence[Place], origin: float, length: float, least: float) -> bool:
    """Whether drops and other falls of the curve agree with epochs of this length; falls below `least` do not count."""
    epochs = (len(y) - 0.5 - origin) / length
    ends_whole = abs(epochs - round(epochs)) <= THRESHOLDS.epoch_near
    inner = round(epochs) - 1 if ends_whole else int(epochs)
    begun = _begun(places, length)
    if inner < (2 if ends_whole else 3) or len(begun) < max(2.0, THRESHOLDS.epoch_drops * len(places)):
        return False
    clear = _clear(y, [origin + epoch * length for epoch in range(1, inner + 1)], length, least)
    return len({1 + place for place in clear}.union(begun)) >= max(min(inner, 3), THRESHOLDS.epoch_falls * inner)


def _clear(y: Array, at: Sequence[float], length: float, least: float) -> list[int]:
    """At which of some places a curve falls clearly more than elsewhere, and by more than `least`; an epoch is that long."""
    gap, window = max(1, round(THRESHOLDS.epoch_part * length)), int(np.clip(length / 4, 1, 16))
    fall = falls_at(y, gap, window).fall
    typical = upper_median(fall)
    least = max(least, THRESHOLDS.epoch_clear * 1.4826 * upper_median(np.abs(fall - typical)))
    begins = [round(place) - window for place in at]
    return [i for i, j in enumerate(begins) if fall[max(j - 2, 0) : max(j + 3, 0)].max(initial=-np.inf) - typical > least]


def _begun(places: Sequence[Place], length: float) -> list[int]:
    """The epochs of this length that drops begin which are short against it."""
    near, short = THRESHOLDS.epoch_near + 2.0 / length, THRESHOLDS.epoch_part + 1.5 / length
    return [round(at / length) for at, took in places if abs(at / length - round(at / length)) <= near and took / length <= short]
