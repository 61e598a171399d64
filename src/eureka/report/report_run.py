"""The runs of a report, each file read once, so that every part of the page shows the same state of the study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eureka.runs import Metrics, Origin, Outcome, ProbeRecord, Probes, Run, RunFolder, StartRecord, StoredConfig, TaskRecord


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


def read_rest(run: Run) -> ReportRun:
    """A run whose config and outcome have been read, with the rest of its files."""
    folder = run.folder
    return ReportRun(
        run=run,
        origin=folder.origin(),
        start=folder.start(),
        metrics=folder.metrics(),
        task=folder.task(),
        environment=folder.environment(),
        attention=folder.attention(),
        probes=folder.probes() or Probes(),
    )
