"""Find the Eureka-moments of a loss curve.

A **Eureka-moment** ends a stretch of near-constant progress, long against what follows, by a loss reduction that is large against
the noise *and* against what the stretch's own trend would have brought, over a time short against the stretch.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from eureka.curves.candidates import falls_at, find_candidates, scales
from eureka.curves.confidence import FEATURES, probability
from eureka.curves.drops import Drop, measure_drop
from eureka.curves.epochs import epochs_of, falls_with
from eureka.curves.grid import Array, Grid, changes, clean, grids, later_extent, white_noise
from eureka.curves.kinds import Known, is_recovery, kind_of, looks_like_rate_step
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.scale import moment_times_two_to, tame
from eureka.curves.steepest import fit_drop
from eureka.curves.thresholds import THRESHOLDS

NOISE = FEATURES.index("noise")
Found = tuple[Grid, Drop, float]
"""A drop, the grid it was found on, and how sure it is."""


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

    Args:
        values: the curve, usually a loss
        steps: the step of each value; 0, 1, 2, … unless given
        lr: the learning rate at each value: drops that it explains have kind ``lr_step``
        epochs: the epoch at each value: drops as an epoch begins have kind ``epoch_boundary``
        rising: more is better: the moments are rises
        floor: the lowest loss (of a rising metric: the highest value) that the task allows: what goes beyond it is a ``leak``

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
    tamed, power = tame(values)
    if power:
        floor = None if floor is None else math.ldexp(floor, power)
        found = detect(tamed, steps, lr=lr, epochs=epochs, floor=floor, min_confidence=min_confidence)
        return [moment_times_two_to(moment, -power) for moment in found]
    x, y = changes(*clean(tamed, steps))
    if len(x) < THRESHOLDS.min_points:
        return []
    places = np.arange(len(np.ravel(values))) if steps is None else steps
    known = Known(
        rates=None if lr is None else clean(lr, places), epochs=None if epochs is None else clean(epochs, places), floor=floor
    )
    drops = [(grid, drop, probability(drop.features)) for grid in grids(x, y) for drop in find_drops(grid)]
    sure = [one for one in separate([one for one in drops if one[2] >= min_confidence]) if _is_clear(one[0], one[1])]
    if epochs is None:
        known = replace(known, epochs=_inferred_epochs(sure))
    moments = [_moment(*one, known) for one in sure]
    begun = [moment for moment in moments if moment.kind == "epoch_boundary"]
    if len(begun) == 1 and known.epochs is not None and not _remembers(begun[0], sure, known.epochs):
        moments = [_moment(*one, replace(known, epochs=None)) for one in sure]
    moments = [moment for moment in moments if moment.confidence >= min_confidence]
    return sorted(moments, key=lambda moment: moment.steepest)


def _inferred_epochs(sure: list[Found]) -> tuple[Array, Array] | None:
    """The epochs that the drops on the grid of the whole curve show, if they do."""
    whole = [(grid, drop) for grid, drop, _ in sure if grid.last]
    return epochs_of(whole[0][0], [drop for _, drop in whole]) if whole else None


def _remembers(moment: EurekaMoment, sure: list[Found], epochs: tuple[Array, Array]) -> bool:
    """Whether a drop as an epoch begins is memorising: it comes with the second epoch, or others fall as well.

    What is memorised falls most when samples come for the second time. A drop at a later epoch alone is a coincidence.
    """
    second = float(np.interp(moment.steepest, *epochs)) < np.floor(epochs[1][0]) + 1.5
    whole = [(grid, drop) for grid, drop, _ in sure if grid.last]
    return second or not whole or falls_with(whole[0][0], [drop for _, drop in whole], epochs)


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
    noise, reach, found = white_noise(y), later_extent(y), []
    usable = len(y) if grid.last else int(0.7 * len(y))  # later drops would see the cut as the end of the log
    for gap, window in scales(len(y)):
        scale = falls_at(y, gap, window)
        for index in find_candidates(scale, noise):
            if index + scale.length + window <= usable:
                drop = measure_drop(y, noise, scale, index, reach, last=grid.last)
                if drop is not None:
                    found.append(drop)
    return found


def separate(found: list[Found]) -> list[Found]:
    """Of drops that overlap keep the surest, and among equally sure ones the greatest; but its parts, if it is several drops."""
    kept: list[Found] = []
    for one in sorted(found, key=lambda one: (round(one[2], 2), one[1].size), reverse=True):
        if _is_free(one, kept):
            kept += _parts(one, found) or [one]
    return kept


def _parts(whole: Found, found: list[Found]) -> list[Found]:
    """The drops that a longer one consists of: at least two that are sure, short against it, and together about as large."""
    start, end = _span(whole)
    parts: list[Found] = []
    for one in sorted(found, key=lambda one: one[1].size, reverse=True):
        a, b = _span(one)
        short = b - a <= THRESHOLDS.part_short * (end - start)
        if one[2] >= THRESHOLDS.part_sure and short and start <= 0.5 * (a + b) <= end and _is_free(one, parts):
            parts.append(one)
    size = sum(drop.size for _, drop, _ in parts)
    return parts if len(parts) > 1 and size >= THRESHOLDS.part_sum * whole[1].size else []


def _is_free(one: Found, kept: list[Found]) -> bool:
    """Whether a drop overlaps none of those kept."""
    start, end = _span(one)
    return all(end < a or start > b for a, b in map(_span, kept))


def _span(one: Found) -> tuple[float, float]:
    grid, drop, _ = one
    return grid.step(drop.onset), grid.step(drop.end)


def _moment(grid: Grid, drop: Drop, confidence: float, known: Known) -> EurekaMoment:
    fit = fit_drop(grid.values, drop.tenth, drop.ninetieth, drop.past)
    fastest = min(fit.centre, drop.end)
    closer = fit_drop(grid.values, fit.at(0.1), fit.at(0.9), drop.past).at(0.05)
    onset = grid.step(min(max(drop.onset, closer), fastest))  # a sudden drop is steepest before a twentieth of it is done
    kind = kind_of(grid, drop, known, fit)
    confidence = min(confidence, THRESHOLDS.surest)
    doubtful = kind == "eureka" and known.rates is None and looks_like_rate_step(grid, drop, fit)
    return EurekaMoment(
        onset=onset,
        steepest=grid.step(fastest),
        end=grid.step(drop.end),
        before=drop.before,
        after=drop.after,
        plateau=Plateau(start=grid.step(min(drop.past, fastest)), end=onset, level=drop.usual),
        kind=kind,
        confidence=confidence * (1.0 - THRESHOLDS.doubt) if doubtful else confidence,
        like_rate_step=doubtful,
    )
