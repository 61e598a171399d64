"""What is shown while runs are at work: bars in a terminal, a line for each event elsewhere. All on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from eureka.formats import duration, fixed, plural
from eureka.runs import Metrics, RunFolder, read_run
from eureka.study.arms import group_runs
from eureka.study.status import Phase, RunStatus, run_status

STYLES: dict[Phase, str] = {
    "eureka": "bold green",
    "ended": "",
    "plateau": "yellow",
    "learning": "cyan",
    "waiting": "dim",
    "starting": "dim",
    "interrupted": "dim",
    "diverged": "red",
}
FIRST_PROBES = 6
"""Linear probes after which an estimate is made."""


class TerminalProgress(Progress):
    """Bars on standard error that vanish at the end; nothing at all where that is no terminal."""

    def __init__(self, *columns: ProgressColumn) -> None:
        super().__init__(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())


@contextlib.contextmanager
def run_progress(steps: int) -> Iterator[Callable[[Metrics], None]]:
    """The bar of one run; gives what the run takes as `on_log`."""
    count = TextColumn("{task.completed:,}/{task.total:,}")
    with TerminalProgress(BarColumn(), count, TextColumn("{task.description}"), TimeRemainingColumn()) as progress:
        bar = progress.add_task("starting", total=steps)

        def show(line: Metrics) -> None:
            text = f"loss {fixed(line.validation_loss)}, accuracy {fixed(line.validation_accuracy)}"
            progress.update(bar, completed=line.step, description=text)

        yield show


@contextlib.contextmanager
def race_progress() -> Iterator[Callable[[str, int, int], None]]:
    """The bar of a race; gives what `eureka.race` takes as `on_step`."""
    count = TextColumn("{task.completed:,}/{task.total:,}")
    with TerminalProgress(BarColumn(), count, TextColumn("{task.description}"), TimeRemainingColumn()) as progress:
        bar = progress.add_task("starting", total=1)
        yield lambda name, taken, most: progress.update(bar, completed=taken, total=most, description=name)


class ProbeProgress(TerminalProgress):
    """The bar of linear probes; after the first few a line says how long the others will take."""

    def __init__(self, stages: int) -> None:
        super().__init__(BarColumn(), TextColumn("{task.completed} {task.description}"), TimeRemainingColumn())
        self.stages, self.done = stages, 0
        self.began: float | None = None
        """when the first probe was done"""
        self.bar = self.add_task("linear probes", total=None)

    def stage(self) -> Callable[[int, int], None]:
        """What the probes of the next stage report to: how many are done, and of how many. All stages have as many."""
        before = self.done

        def show(done: int, total: int) -> None:
            self.done = before + done
            self.update(self.bar, completed=self.done, total=self.stages * total)
            if self.began is None:
                self.began = time.monotonic()
            if self.done == min(FIRST_PROBES, total):
                self._tell(self.stages * total, time.monotonic() - self.began)

        return show

    def _tell(self, total: int, taken: float) -> None:
        seconds = taken / max(1, self.done - 1) * (total - self.done)
        self.console.print(f"{plural(total, 'linear probe')}: about {duration(seconds)} more", highlight=False)


class StateColumn(ProgressColumn):
    """The state of a run in words."""

    def render(self, task: Task) -> Text:
        return Text(task.fields["text"], STYLES[task.fields["phase"]])


class StudyProgress(TerminalProgress):
    """A bar for each run of a study, below the number of those that have ended and what else is to be said."""

    def __init__(self, headline: Callable[[], str]) -> None:
        self.headline = headline
        right = Column(justify="right")
        super().__init__(
            TextColumn("{task.description}", markup=False),
            BarColumn(20),
            TextColumn("step {task.fields[step]:,}", table_column=right),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("accuracy {task.fields[accuracy]}"),
            StateColumn(),
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        ended = sum(task.fields["ended"] for task in self.tasks)
        yield Text(f"{ended} of {len(self.tasks)} runs ended{self.headline()} · Ctrl-C stops, the same command goes on", "dim")
        yield self.make_tasks_table(self.tasks)


class StudyDisplay:
    """Give it to a pool as `watch`; it shows within ``with``. The headline is added to the number of runs that have ended."""

    def __init__(self, folders: Sequence[RunFolder], headline: Callable[[], str] = str) -> None:
        self.folders = folders
        self.labels = run_labels(folders)
        self.statuses = {folder.path: folder_status(folder) for folder in folders}
        self.at_work: set[Path] = set()
        self.progress = StudyProgress(headline)
        self.bars = {path: self.progress.add_task(label, **_bar(self.statuses[path])) for path, label in self.labels.items()}

    def __enter__(self) -> StudyDisplay:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for folder in self.folders:
            self._update(folder)
        self.progress.stop()

    def __call__(self, running: Sequence[RunFolder]) -> None:
        just_left = self.at_work - {folder.path for folder in running}
        self.at_work = {folder.path for folder in running}
        for folder in self.folders:
            if folder.path in self.at_work or folder.path in just_left:
                self._update(folder)

    def _update(self, folder: RunFolder) -> None:
        before, now = self.statuses[folder.path], folder_status(folder, folder.path in self.at_work)
        self.statuses[folder.path] = now
        self.progress.update(self.bars[folder.path], **_bar(now))
        if self.progress.disable and now.phase != "starting" and (now.phase, now.ended) != (before.phase, before.ended):
            sys.stderr.write(f"{self.labels[folder.path]}: {now.text}{_figures(now)}\n")
            sys.stderr.flush()


def folder_status(folder: RunFolder, at_work: bool | None = None) -> RunStatus:
    run = read_run(folder)
    assert run is not None, f"{folder.path} holds no run"
    return run_status(run, at_work)


def run_labels(folders: Sequence[RunFolder]) -> dict[Path, str]:
    """The runs as people speak of them: the fix, whatever distinguishes runs of one fix, and the seed."""
    grouping = group_runs([run for run in map(read_run, folders) if run is not None])
    return {run.folder.path: grouping.label(run) for run in grouping.runs}


def _bar(status: RunStatus) -> dict[str, Any]:
    """The fields of a run's bar; it is full for a run that has ended, however early."""
    return {
        "total": max(status.step, 1) if status.ended else status.steps,
        "completed": max(status.step, 1) if status.ended else status.step,
        "step": status.step,
        "loss": fixed(status.loss),
        "accuracy": fixed(status.accuracy),
        "ended": status.ended,
        "phase": status.phase,
        "text": status.text,
    }


def _figures(status: RunStatus) -> str:
    if status.loss is None:
        return ""
    return f" (step {status.step:,}, loss {fixed(status.loss)}, accuracy {fixed(status.accuracy)})"
