"""What the detector reports: a plateau, and the moment that ended it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["eureka", "lr_step", "recovery", "epoch_boundary", "leak"]


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """A stretch of near-constant progress, in the caller's step units."""

    start: float
    end: float
    level: float
    """The median loss in it."""


@dataclass(frozen=True, kw_only=True)
class EurekaMoment:
    """An abrupt drop that ended a plateau; all steps are in the caller's units.

    >>> flat = Plateau(start=0.0, end=790.0, level=4.5)
    >>> moment = EurekaMoment(onset=790.0, steepest=856.0, end=1000.0, before=4.4, after=1.2, plateau=flat, confidence=0.99)
    >>> moment.kind, round(moment.drop, 1)
    ('eureka', 3.2)
    """

    onset: float
    """Where the loss leaves the plateau."""
    steepest: float
    """Where it falls fastest."""
    end: float
    """Where the fast fall is over."""
    before: float
    """The loss at the onset."""
    after: float
    """The loss at the end."""
    plateau: Plateau
    kind: Kind = "eureka"
    """``lr_step`` when a given learning rate explains the drop, ``recovery`` when it only undoes a rise, ``epoch_boundary`` when
    it comes as a new epoch begins, ``leak`` when it goes far below a given floor."""
    confidence: float
    """How likely such a drop is a planted one, on planted curves (``python -m benchmarks.detector_calibration``)."""
    like_rate_step: bool = False
    """Whether it looks like a step of the learning rate, which is not known; the confidence is lowered for that."""

    @property
    def drop(self) -> float:
        """How far the loss fell, or a metric rose."""
        return abs(self.before - self.after)
