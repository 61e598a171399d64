"""Levels that a curve may sit on: those that the user states, chance, and the floor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.moment import Plateau
from eureka.curves.readers.columns import is_loss
from eureka.curves.readers.curve import Curve
from eureka.formats import measurement

NEAR = 0.02
"""A plateau is at a stated level if it is within this share of it, or within its own noise."""
NEAR_GUESS = 0.003
"""The same for a level that nobody stated. Chance for numbers of classes that are common is rarely nearer by accident."""
PERFECT = 0.03
"""What is left at most where nobody would ask for more."""
COMMON = (
    *range(2, 11),
    *(16, 20, 26, 32, 50, 62, 64, 100, 101, 128, 200, 256, 365, 512, 1000, 1024, 10_000),
    *(28_996, 30_522, 32_000, 32_128, 50_257, 50_304, 65_536, 100_277, 128_256, 151_936, 256_000),
)
"""Numbers of classes that data sets have, and of tokens that vocabularies have."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """A value with the name of the predictor that reaches it."""

    name: str
    value: float
    classes: int | None = None
    """The number of classes, if the predictor only guesses."""
    stated: bool = True
    """Whether the user said it; else it was recognised, and is a guess."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the user says about the task of a log."""

    classes: int | None = None
    floor: float | None = None
    """The best loss that the task allows."""
    levels: tuple[Level, ...] = ()

    def about(self, curve: Curve, *, chosen: bool) -> Given:
        """What of it is about a curve: floor and levels are losses, unless the metric was chosen by its name."""
        return replace(self, floor=None, levels=()) if curve.rising and not chosen else self


NOTHING = Given()


def chance(curve: Curve, classes: int, *, stated: bool = True) -> Level:
    """What guessing among some classes gives: ln of their number as a loss, a share or a percentage as an accuracy."""
    if not curve.rising:
        return Level(name=f"ln {classes:,}", value=math.log(classes), classes=classes, stated=stated)
    whole = 100 if float(np.nanmax(curve.values)) > 1.5 else 1
    return Level(name=f"{whole}/{classes:,}", value=whole / classes, classes=classes, stated=stated)


def level_of(curve: Curve, plateau: Plateau, given: Given) -> Level | None:
    """The level that a plateau is at: the nearest that was stated, or, where none was, chance if it can be recognised."""
    error = _error(curve, plateau)
    stated = [*given.levels, *([chance(curve, given.classes)] if given.classes else [])]
    near = [one for one in stated if abs(plateau.level - one.value) <= max(NEAR * abs(one.value), 2.0 * error)]
    if near:
        return min(near, key=lambda one: abs(plateau.level - one.value))
    return next(_recognised(curve, plateau, error), None) if not stated else None


def _recognised(curve: Curve, plateau: Plateau, error: float) -> Iterator[Level]:
    """Chance for a common number of classes, if the curve began near it and never went below it."""
    begun, lowest = float(np.median(curve.values[:5])), float(np.quantile(curve.values, 0.02))
    inside = _inside(curve, plateau)
    below = float(np.quantile(inside, 0.02)) if len(inside) else lowest
    if curve.rising or not is_loss(curve.metric) or begun > 2.5 * plateau.level or lowest < below - 2.0 * error - 1e-9:
        return
    near = NEAR_GUESS * plateau.level
    for level in sorted((chance(curve, n, stated=False) for n in COMMON), key=lambda one: abs(one.value - plateau.level)):
        if error <= near and abs(level.value - plateau.level) <= near:
            yield level


def at_floor(curve: Curve, plateau: Plateau, floor: float) -> bool:
    """Whether a plateau is at the floor, by the share of the way that is left to it."""
    left = (floor - plateau.level) if curve.rising else (plateau.level - floor)
    return left <= max(NEAR * float(np.ptp(curve.values)), 2.0 * _error(curve, plateau))


def nearly_perfect(curve: Curve, plateau: Plateau) -> bool:
    """Whether hardly anything better is thinkable: an accuracy near 1 or 100 %, a loss of next to nothing of what it was."""
    if not curve.rising:
        return 0.0 <= plateau.level <= PERFECT * float(np.median(curve.values[:5]))
    whole = 100.0 if float(np.nanmax(curve.values)) > 1.5 else 1.0
    return (1.0 - PERFECT) * whole <= plateau.level <= whole


def _inside(curve: Curve, plateau: Plateau) -> Array:
    values = curve.values[(curve.steps >= plateau.start) & (curve.steps <= plateau.end)]
    return values[np.isfinite(values)]


def _error(curve: Curve, plateau: Plateau) -> float:
    """The standard error of the level of a plateau; neighbours may err alike, which this does not know."""
    inside = _inside(curve, plateau)
    return float(1.25 * inside.std() / math.sqrt(len(inside))) if len(inside) > 1 else 0.0


def described(level: Level) -> str:
    """A level in words.

    >>> described(Level(name="ln 10", value=math.log(10), classes=10)), described(Level(name="unigram", value=6.5))
    ('chance for 10 classes (ln 10 = 2.303)', 'the level unigram (6.500)')
    """
    if level.classes is None:
        return f"the level {level.name} ({measurement(level.value)})"
    return f"chance for {level.classes:,} classes ({level.name} = {measurement(level.value)})"
