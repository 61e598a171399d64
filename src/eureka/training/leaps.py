"""When has a run had its Eureka-moment? The one place that says so.

**The rule.** A task knows its levels: the losses and accuracies of optimal predictors that have learned only its last step, its
last two steps, …, all of them. A run leaves a level at the first logged step at which

- the validation accuracy is at least halfway from this level's accuracy to the next level's, and
- the validation loss is below this level's loss.

A model cannot reach either without the next step of the task, so no threshold is tuned. That logged step is the *Eureka-step*.
The *onset* is the first logged step from which on, until the Eureka-step, the loss is below this level's loss. A run has had its
Eureka-moment when it has left the last level above the floor. A two-step task has only one such level.
"""

from __future__ import annotations

from collections.abc import Sequence

from eureka.runs import Leap, Level, Metrics


def find_leap(metrics: Sequence[Metrics], levels: Sequence[Level], level: int) -> Leap | None:
    """When the run left one level, by the rule above."""
    here, above = levels[level], levels[level + 1]
    halfway = (here.accuracy + above.accuracy) / 2
    for index, line in enumerate(metrics):
        if line.validation_accuracy >= halfway and line.validation_loss < here.loss:
            return Leap(level, metrics[onset(metrics, index, here.loss)].step, line.step)
    return None


def onset(metrics: Sequence[Metrics], index: int, plateau: float) -> int:
    """The index of the first line, up to `index`, from which on the loss is below the plateau."""
    while index and metrics[index - 1].validation_loss < plateau:
        index -= 1
    return index


def find_leaps(metrics: Sequence[Metrics], levels: Sequence[Level]) -> list[Leap]:
    """Every leap of the run, the one from the first plateau first."""
    found = (find_leap(metrics, levels, level) for level in range(len(levels) - 1))
    return [leap for leap in found if leap is not None]


def eureka_leap(metrics: Sequence[Metrics], levels: Sequence[Level]) -> Leap | None:
    """The leap to the floor: the run has solved the task."""
    return find_leap(metrics, levels, len(levels) - 2)
