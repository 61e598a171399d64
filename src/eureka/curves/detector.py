"""Find the Eureka-moments of a loss curve.

A **Eureka-moment** ends a stretch of near-constant progress, long against what follows, by a loss reduction that is large against
the noise *and* against what the stretch's own trend would have brought, over a time short against the stretch.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from eureka.curves.candidates import falls_at, find_candidates, scales
from eureka.curves.confidence import FEATURES, probability
from eureka.curves.drops import Drop, measure_drop
from eureka.curves.grid import Array, Grid, clean, extent, grids, white_noise
from eureka.curves.kinds import Known, is_recovery, kind_of
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.steepest import steepest_index
from eureka.curves.thresholds import THRESHOLDS

NOISE = FEATURES.index("noise")


def detect(
    values: ArrayLike,
    steps: ArrayLike | None = None,
    *,
    lr: ArrayLike | None = None,
    epochs: ArrayLike | None = None,
    rising: bool = False,
    floor: float | None = None,
    min_confidence: float = THRESHOLDS.sure,
) -> list[EurekaMoment]:
    """All Eureka-moments of a curve, in order; NaNs, gaps, duplicated and unsorted steps do no harm.

    lr       the learning rate at each value: drops that it explains have kind ``lr_step``
    epochs   the epoch at each value: drops as an epoch begins have kind ``epoch_boundary``
    rising   more is better: the moments are rises
    floor    the lowest loss (of a rising metric: the highest value) that the task allows: what goes beyond it is a ``leak``

    Drops that only undo a rise have kind ``recovery``.

    >>> t = np.arange(1000)
    >>> [moment] = detect(2.0 - 1.8 / (1.0 + np.exp(-(t - 600) / 8.0)))
    >>> moment.kind, round(moment.steepest), moment.confidence > 0.9
    ('eureka', 600, True)
    >>> detect(1.0 + (1.0 + t) ** -0.5)
    []
    """
    if rising:
        floor = None if floor is None else -floor
        fallen = detect(_negated(values), steps, lr=lr, epochs=epochs, floor=floor, min_confidence=min_confidence)
        return [upside_down(moment) for moment in fallen]
    x, y = clean(values, steps)
    if len(x) < THRESHOLDS.min_points:
        return []
    places = np.arange(len(np.ravel(values))) if steps is None else steps
    known = Known(
        rates=None if lr is None else clean(lr, places), epochs=None if epochs is None else clean(epochs, places), floor=floor
    )
    found = [(grid, drop, probability(drop.features)) for grid in grids(x, y) for drop in find_drops(grid)]
    sure = separate([one for one in found if one[2] >= min_confidence])
    moments = [_moment(grid, drop, confidence, known) for grid, drop, confidence in sure if _is_clear(grid, drop)]
    return sorted(moments, key=lambda moment: moment.steepest)


def _negated(values: ArrayLike) -> Array:
    return -np.asarray(values, dtype=np.float64)


def upside_down(moment: EurekaMoment) -> EurekaMoment:
    """The moment of a curve whose values were negated, in the values before that."""
    plateau = replace(moment.plateau, level=-moment.plateau.level)
    return replace(moment, before=-moment.before, after=-moment.after, plateau=plateau)


def _is_clear(grid: Grid, drop: Drop) -> bool:
    """A recovery must stand out from the noise more clearly than its confidence asks: noise itself goes up and down."""
    return drop.features[NOISE] >= np.log(THRESHOLDS.recovery_noise) or not is_recovery(grid, drop)


def find_drops(grid: Grid) -> list[Drop]:
    """All candidate drops of one grid, at every scale."""
    y = grid.values
    if len(y) < THRESHOLDS.min_points:
        return []
    noise, reach, found = white_noise(y), extent(y), []
    usable = len(y) if grid.last else int(0.7 * len(y))  # later drops would see the cut as the end of the log
    for gap, window in scales(len(y)):
        scale = falls_at(y, gap, window)
        for index in find_candidates(scale, noise):
            if index + scale.length + window <= usable:
                drop = measure_drop(y, noise, scale, index, reach, last=grid.last)
                if drop is not None:
                    found.append(drop)
    return found


def separate(found: list[tuple[Grid, Drop, float]]) -> list[tuple[Grid, Drop, float]]:
    """Of drops that overlap keep the surest, and among equally sure ones the greatest."""
    kept: list[tuple[Grid, Drop, float]] = []
    for grid, drop, sure in sorted(found, key=lambda one: (round(one[2], 2), one[1].size), reverse=True):
        a, b = grid.step(drop.onset), grid.step(drop.end)
        if all(b < other.step(taken.onset) or a > other.step(taken.end) for other, taken, _ in kept):
            kept.append((grid, drop, sure))
    return kept


def _moment(grid: Grid, drop: Drop, confidence: float, known: Known) -> EurekaMoment:
    fastest = min(steepest_index(grid.values, drop.tenth, drop.ninetieth), drop.end)
    onset = grid.step(min(drop.onset, fastest))  # a sudden drop is steepest before a twentieth of it is done
    return EurekaMoment(
        onset=onset,
        steepest=grid.step(fastest),
        end=grid.step(drop.end),
        before=drop.before,
        after=drop.after,
        plateau=Plateau(start=grid.step(min(drop.past, fastest)), end=onset, level=drop.usual),
        kind=kind_of(grid, drop, known),
        confidence=confidence,
    )
