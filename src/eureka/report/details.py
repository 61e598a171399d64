"""Exactly what was run, and how to run it again: the config, every run, the versions, the plateau of the task, the commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eureka.formats import NONE, count, number, percent, setting
from eureka.report.groups import Groups
from eureka.report.report_run import ReportRun
from eureka.report.results import Table, TableCell
from eureka.runs import find_runs
from eureka.study.arms import split_settings
from eureka.study.commands import Commands, commands_of

MOST_ROWS = 1000
"""Runs that the page lists, at most; of more it lists those whose curves it draws."""
Told = list[tuple[str, str]]
"""Keys with their values as text."""


@dataclass(frozen=True)
class ConfigDetails:
    varied: Told
    """what differs between the runs, with all values"""
    common: Told


@dataclass(frozen=True)
class Plateau:
    """The last plateau of the task and what it takes to leave it, as text."""

    knows: str
    """what the best predictor on it has learned of the task"""
    loss: str
    accuracy: str
    halfway: str


def config_details(runs: Sequence[ReportRun]) -> ConfigDetails:
    common, varied = split_settings([run.config.flat for run in runs])
    return ConfigDetails(_told(varied), [(key, setting(value)) for key, value in common.items()])


def _told(varied: Mapping[str, Sequence[Any]]) -> Told:
    return [(key, ", ".join(map(setting, values))) for key, values in varied.items()]


def versions(runs: Sequence[ReportRun]) -> Told:
    """What the runs were made with; several values if they were made with several."""
    common, varied = split_settings([run.environment for run in runs if run.environment])
    return [*((key, setting(value)) for key, value in common.items()), *_told(varied)]


def runs_table(groups: Groups) -> Table:
    """A row for each run, with its own settings and how it ended."""
    _, varied = split_settings([run.config.flat for run in groups.runs])
    after = ["state", "steps", "onset", "Eureka-step", "last loss", "last accuracy", "time"]
    shown = groups.runs if len(groups.runs) <= MOST_ROWS else [run for run in groups.runs if run.drawn]
    return Table(["run", *varied, *after], [_row(run, varied) for run in shown])


def _row(run: ReportRun, keys: Iterable[str]) -> list[TableCell]:
    outcome, last = run.outcome, run.metrics[-1] if run.metrics else None
    steps = outcome.steps if outcome else last.step if last else None
    texts = [
        run.folder.name,
        *(setting(run.config.flat[key]) if key in run.config.flat else NONE for key in keys),
        run.state.replace("_", " "),
        count(steps),
        count(outcome.onset_step if outcome else None),
        count(outcome.eureka_step if outcome else None),
        number(last.validation_loss) if last else NONE,
        percent(last.validation_accuracy) if last else NONE,
        f"{outcome.seconds:,.0f} s" if outcome else NONE,
    ]
    return [TableCell(text) for text in texts]


def plateau(runs: Sequence[ReportRun]) -> Plateau | None:
    """The thresholds of the last plateau, if they are the same for all runs."""
    ends = {tuple(run.task.levels[-2:]) for run in runs if len(run.task.levels) > 1}
    if len(ends) != 1:
        return None
    last, floor = ends.pop()
    return Plateau(last.knows, number(last.loss), percent(last.accuracy), percent((last.accuracy + floor.accuracy) / 2))


def again(runs: Sequence[ReportRun], folders: Sequence[Path], output: Path) -> Commands:
    """The commands for the terminal, in order: first the runs, then the page."""
    made = commands_of([(run.config, run.origin) for run in runs])
    page = shlex.join(["eureka", "report", *map(str, _places(runs, folders)), "-o", str(output)])
    return Commands([*made.lines, page], made.uses_defaults)


def _places(runs: Sequence[ReportRun], folders: Sequence[Path]) -> Sequence[Path]:
    """The folders that hold the runs, if they hold no others, rather than a hundred run folders."""
    parents = list(dict.fromkeys(run.folder.path.parent for run in runs))
    together = {found.path for parent in parents for found in find_runs(parent)} == {run.folder.path for run in runs}
    return parents if together and len(parents) < len(folders) else folders
