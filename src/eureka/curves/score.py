"""How good a detector is on planted curves: precision, recall, and the error of the step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from eureka.curves.moment import EurekaMoment
from eureka.curves.sketch import Planted, Truth

MARGIN = 0.5
"""How far from the truth a steepest step may be, in lengths of the drop."""


@dataclass
class Score:
    """Counts over many curves.

    >>> score = Score(found=49, missed=1, false=0, errors=[0.01, 0.03])
    >>> score.precision, score.recall, score.median_error
    (1.0, 0.98, 0.02)
    """

    curves: int = 0
    found: int = 0
    missed: int = 0
    false: int = 0
    errors: list[float] = field(default_factory=list)
    """|steepest − truth| of each moment found, in lengths of the drop."""
    early: list[float] = field(default_factory=list)
    """By how much the onset of each moment found comes before the truth, in lengths of the drop and at least one point."""

    @property
    def precision(self) -> float:
        return self.found / (self.found + self.false) if self.found + self.false else 1.0

    @property
    def recall(self) -> float:
        return self.found / (self.found + self.missed) if self.found + self.missed else 1.0

    @property
    def median_error(self) -> float:
        return median(self.errors) if self.errors else 0.0

    def add(self, moments: Sequence[EurekaMoment], curve: Planted, margin: float = MARGIN) -> None:
        """Count one curve: only moments and truths of kind ``eureka`` count, and those that match a `maybe` drop do not."""
        eurekas = [moment for moment in moments if moment.kind == "eureka"]
        reported = [moment.steepest for moment in eurekas]
        truths = [truth for truth in curve.truths if truth.kind == "eureka"]
        pairs = match(reported, truths, spacing(curve), margin)
        rest = [at for i, at in enumerate(reported) if i not in pairs]
        maybe = [truth for truth in curve.maybe if truth.kind == "eureka"]
        excused = match(rest, maybe, spacing(curve), margin)
        self.curves += 1
        self.found += len(pairs)
        self.missed += len(truths) - len(pairs)
        self.false += len(rest) - len(excused)
        self.errors += [abs(reported[i] - truths[j].steepest) / truths[j].length for i, j in pairs.items()]
        least = spacing(curve)
        self.early += [(truths[j].onset - eurekas[i].onset) / max(truths[j].length, least) for i, j in pairs.items()]


def spacing(curve: Planted) -> float:
    """The typical distance between logged steps, below which no step can be known."""
    return float(np.median(np.diff(curve.steps)))


def match(steps: Sequence[float], truths: Sequence[Truth], tolerance: float, margin: float = MARGIN) -> dict[int, int]:
    """Pair reported steps with truths, nearest first, one to one, each within `margin` lengths plus `tolerance`."""
    distances = [
        (abs(step - truth.steepest), i, j)
        for i, step in enumerate(steps)
        for j, truth in enumerate(truths)
        if abs(step - truth.steepest) <= margin * truth.length + tolerance
    ]
    pairs: dict[int, int] = {}
    for _, i, j in sorted(distances):
        if i not in pairs and j not in pairs.values():
            pairs[i] = j
    return pairs


def total(scores: Iterable[Score]) -> Score:
    """All counts together."""
    out = Score()
    for one in scores:
        out.curves, out.found = out.curves + one.curves, out.found + one.found
        out.missed, out.false = out.missed + one.missed, out.false + one.false
        out.errors += one.errors
        out.early += one.early
    return out
