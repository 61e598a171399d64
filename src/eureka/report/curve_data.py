"""Loss and accuracy of every run as the page's script gets them: every logged value once, every list of steps once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from eureka.report.groups import Groups
from eureka.report.report_run import ReportRun
from eureka.runs import Leap, Level

Values = list[float | None]
"""A curve; None is a gap."""


@dataclass(frozen=True)
class FixStyle:
    name: str
    symbol: str


@dataclass(frozen=True)
class PanelData:
    name: str
    levels: list[Level]


@dataclass(frozen=True)
class LeapMark:
    """A plateau that a run left."""

    step: int
    onset: int
    last: bool
    """whether it is the one that counts, the Eureka-moment"""
    loss: float | None
    accuracy: float | None


@dataclass(frozen=True)
class RunCurves:
    fix: int
    panel: int
    seed: int
    state: str
    steps: int
    """which of the lists of steps"""
    loss: Values
    accuracy: Values
    train_loss: Values
    train_accuracy: Values
    leaps: list[LeapMark]


@dataclass(frozen=True)
class CurveData:
    fixes: list[FixStyle]
    panels: list[PanelData]
    steps: list[list[int]]
    """the lists of steps, each once: most runs log at the same steps"""
    runs: list[RunCurves]
    loss_top: float | None
    """where the loss axis ends"""


def curve_data(groups: Groups) -> CurveData:
    """Everything that the curves show; a run without any logged line is left out."""
    steps = SharedSteps()
    return CurveData(
        fixes=[FixStyle(fix.name, fix.mark.symbol) for fix in groups.fixes],
        panels=[PanelData(name, _levels(groups, panel)) for panel, name in enumerate(groups.panels)],
        runs=[_curves(groups, run, steps) for run in groups.runs if run.drawn and run.metrics],
        steps=steps.lists,
        loss_top=loss_top([run for run in groups.runs if run.drawn]),
    )


class SharedSteps:
    """Lists of steps, each kept once."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []
        self._places: dict[tuple[int, ...], int] = {}

    def place(self, steps: list[int]) -> int:
        """Where the list is; it is added if it is new."""
        place = self._places.setdefault(tuple(steps), len(self.lists))
        if place == len(self.lists):
            self.lists.append(steps)
        return place


def _curves(groups: Groups, run: ReportRun, steps: SharedSteps) -> RunCurves:
    metrics = run.metrics
    return RunCurves(
        fix=groups.fix_of(run).index,
        panel=groups.panel_of(run),
        seed=run.config.seed,
        state=run.state,
        steps=steps.place([line.step for line in metrics]),
        loss=[rounded(line.validation_loss) for line in metrics],
        accuracy=[rounded(line.validation_accuracy) for line in metrics],
        train_loss=[rounded(line.train_loss) for line in metrics],
        train_accuracy=[rounded(line.train_accuracy) for line in metrics],
        leaps=_leap_marks(run),
    )


def _leaps(run: ReportRun) -> Sequence[Leap]:
    return () if run.outcome is None else run.outcome.moments or ()


def _leap_marks(run: ReportRun) -> list[LeapMark]:
    at = {line.step: line for line in run.metrics}
    final = len(run.task.levels) - 2
    return [
        LeapMark(
            step=leap.step,
            onset=leap.onset,
            last=run.moment is not None and leap.step == run.moment.step and leap.level == final,
            loss=rounded(at[leap.step].validation_loss) if leap.step in at else None,
            accuracy=rounded(at[leap.step].validation_accuracy) if leap.step in at else None,
        )
        for leap in _leaps(run)
    ]


def _levels(groups: Groups, panel: int) -> list[Level]:
    """The levels of the panel's task: the settings that decide them are the same for all of its runs."""
    return next((run.task.levels for run in groups.runs if groups.panel_of(run) == panel and run.task.levels), [])


def rounded(value: float | None, digits: int = 5) -> float | None:
    """Five digits are more than a screen shows; a value that is not finite is a gap."""
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


def loss_top(runs: Sequence[ReportRun]) -> float | None:
    """Where the loss axis ends: above all that is drawn, but one run that explodes does not press the others flat.

    Everything up to three times the higher of the highest plateau and the usual first loss is shown; zooming out shows the rest.
    """
    curves = [[rounded(line.validation_loss) for line in run.metrics] for run in runs if run.metrics]
    first = sorted(curve[0] for curve in curves if curve[0] is not None)
    if not first:
        return None
    usual = max([first[len(first) // 2], *(level.loss for run in runs for level in run.task.levels)])
    highest = max(loss for curve in curves for loss in curve if loss is not None)
    return 1.05 * min(highest, 3 * usual) or None
