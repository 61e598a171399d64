"""When has a run had its Eureka-moment? The one place that says so.

**The rule.** A task knows its levels: the losses and accuracies of optimal predictors that have learned only its last step, its
last two steps, …, all of them. A run leaves a level at the first logged step at which

- the validation accuracy is at least halfway from this level's accuracy to the next level's, and
- the validation loss is below this level's loss.

Neither can be had without the next step of the task, whatever the model does, so no threshold is tuned. That is the
*Eureka-step*. The *onset* is the first logged step from which on, until the Eureka-step, the loss is below this level's loss.
A run has had its Eureka-moment when it has left the last level above the floor. For a two-step task there is only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class LevelLike(Protocol):
    """What the rule needs of a task's level."""

    @property
    def loss(self) -> float: ...
    @property
    def accuracy(self) -> float: ...


@dataclass(frozen=True)
class Point:
    """One validation."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Moment:
    """The leap from one level to the next."""

    level: int
    """which plateau it ended, from 0"""
    onset: int
    step: int


def find_moment(points: Sequence[Point], levels: Sequence[LevelLike], level: int) -> Moment | None:
    """When the run left one level, by the rule above."""
    here, above = levels[level], levels[level + 1]
    halfway = (here.accuracy + above.accuracy) / 2
    for index, point in enumerate(points):
        if point.accuracy >= halfway and point.loss < here.loss:
            return Moment(level, points[onset(points, index, here.loss)].step, point.step)
    return None


def onset(points: Sequence[Point], index: int, plateau: float) -> int:
    """The first of the points up to `index` from which on the loss is below the plateau."""
    while index and points[index - 1].loss < plateau:
        index -= 1
    return index


def find_moments(points: Sequence[Point], levels: Sequence[LevelLike]) -> list[Moment]:
    """Every level that the run left, the shortcut first."""
    found = (find_moment(points, levels, level) for level in range(len(levels) - 1))
    return [moment for moment in found if moment is not None]


def eureka_moment(points: Sequence[Point], levels: Sequence[LevelLike]) -> Moment | None:
    """The leap to the floor: the run has solved the task."""
    return find_moment(points, levels, len(levels) - 2)
