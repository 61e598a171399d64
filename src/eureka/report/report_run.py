"""The runs of a report, each file read once, so that every part of the page shows the same state of the study."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eureka.runs import (
    Metrics,
    MetricsColumns,
    Origin,
    Outcome,
    ProbeRecord,
    Probes,
    Run,
    RunFolder,
    StartRecord,
    StoredConfig,
    TaskRecord,
)
from eureka.study.arms import ArmKey, ConditionKey, Grouping
from eureka.thinning import BUCKETS, thin

MOST_DRAWN = 400
"""Curves on a page, at most; more could not be told apart. Tables and verdicts always have all runs."""
NUMBERS = 36_000
"""How many numbers the curves of all runs may have, about 250 kB; those of a larger study are thinned until they fit."""
FEWEST = 8
"""Buckets of a thinned curve, at least."""


@dataclass(frozen=True)
class Moment:
    """When a run had its Eureka-moment."""

    step: int
    onset: int | None


@dataclass(frozen=True)
class ReportRun:
    """A run with everything that the page shows of it."""

    run: Run
    origin: Origin | None
    start: StartRecord | None
    metrics: Sequence[Metrics]
    task: TaskRecord
    environment: dict[str, str]
    attention: Sequence[ProbeRecord]
    probes: Probes
    drawn: bool = True
    """whether its curves are on the page; else `metrics` has only the last line, and `attention` none"""

    @property
    def folder(self) -> RunFolder:
        return self.run.folder

    @property
    def config(self) -> StoredConfig:
        return self.run.config

    @property
    def outcome(self) -> Outcome | None:
        return self.run.outcome

    @property
    def moment(self) -> Moment | None:
        if self.outcome is None or self.outcome.eureka_step is None:
            return None
        return Moment(self.outcome.eureka_step, self.outcome.onset_step)

    @property
    def state(self) -> str:
        """``finished``, ``stopped_early``, ``diverged``, ``unfinished`` or ``not begun``."""
        if self.outcome is not None:
            return self.outcome.status
        return "unfinished" if self.metrics else "not begun"


def buckets_for(runs: int) -> int:
    """How far the curves of so many runs are thinned: four columns, and of each a bucket has up to two points."""
    return max(FEWEST, min(BUCKETS, NUMBERS // (4 * 8 * max(1, runs))))


def read_rest(run: Run, *, drawn: bool = True, buckets: int = BUCKETS) -> ReportRun:
    """A run whose config and outcome have been read, with the rest of its files; curves are thinned as they are read."""
    folder = run.folder
    return ReportRun(
        run=run,
        origin=folder.origin(),
        start=folder.start(),
        metrics=_thinned(run, buckets) if drawn else folder.last_metrics(),
        task=folder.task(),
        environment=folder.environment(),
        attention=folder.attention() if drawn else [],
        probes=folder.probes() or Probes(),
        drawn=drawn,
    )


def _thinned(run: Run, buckets: int) -> list[Metrics]:
    """The logged lines that a picture needs; those of a leap are kept, as its mark stands on the curve."""
    leaps = () if run.outcome is None else run.outcome.moments or ()
    steps = {step for leap in leaps for step in (leap.onset, leap.step)}
    columns = MetricsColumns.of(run.folder)
    chosen = thin(columns.values, buckets=buckets, keep=np.flatnonzero(np.isin(columns.steps, list(steps))))
    return [columns.line(i) for i in chosen]


def chosen_to_draw(grouping: Grouping, most: int = MOST_DRAWN) -> set[Path]:
    """The folders of the runs whose curves are drawn: all, or the first seeds of every cell."""
    if len(grouping.runs) <= most:
        return {run.folder.path for run in grouping.runs}
    by_cell: dict[Hashable, list[Run]] = {}
    for run in grouping.runs:
        by_cell.setdefault((ConditionKey.of(run.config), ArmKey.of(run.config), run.config.lr), []).append(run)
    cells = [sorted(runs, key=lambda run: run.config.seed) for runs in by_cell.values()]
    rounds = (run for together in itertools.zip_longest(*cells) for run in together if run is not None)
    return {run.folder.path for run in itertools.islice(rounds, most)}
