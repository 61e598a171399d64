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
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from eureka.formats import duration, fixed, plural
from eureka.runs import Metrics, Run, RunFolder, read_run
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
MOST_BARS = 40
"""Runs that all have a bar; of more only those at work have one."""
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
def check_bar(checks: int) -> Iterator[Callable[[str], None]]:
    """The bar of a diagnosis; gives what it takes as `on_check`."""
    with TerminalProgress(BarColumn(), TextColumn("{task.completed}/{task.total} {task.description}")) as progress:
        bar = progress.add_task("starting", total=checks)
        yield lambda name: progress.update(bar, advance=1, description=name)


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

    def __init__(self, headline: Callable[[], str], ended_before: int = 0) -> None:
        self.headline, self.ended_before = headline, ended_before
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
        ended = self.ended_before + sum(task.fields["ended"] for task in self.tasks)
        total = self.ended_before + len(self.tasks)
        yield Text(f"{ended} of {total} runs ended{self.headline()} · Ctrl-C stops, the same command goes on", "dim")
        yield self.make_tasks_table([task for task in self.tasks if task.visible])


Mark = tuple[bool, int, bool]
"""Whether a process is at work on a run, how long its log is, and whether it has a result."""


class StudyDisplay:
    """Give it to a pool as `watch`; it shows within ``with``. The headline is added to the number of runs that have ended.

    Runs that had ended before are only counted, and of many runs only those at work have a bar.
    """

    def __init__(self, runs: Sequence[Run], headline: Callable[[], str] = str) -> None:
        unfinished = [run for run in runs if run.outcome is None]
        grouping = group_runs(runs)
        self.folders = {run.folder.path: run.folder for run in unfinished}
        self.labels = {run.folder.path: grouping.label(run) for run in unfinished}
        self.statuses = {run.folder.path: run_status(run) for run in unfinished}
        self.at_work: set[Path] = set()
        self.marks: dict[Path, Mark] = {}
        self.few = len(unfinished) <= MOST_BARS
        self.progress = StudyProgress(headline, len(runs) - len(unfinished))
        self.bars = {path: self._add(path) for path in self.folders}

    def _add(self, path: Path) -> TaskID:
        return self.progress.add_task(self.labels[path], visible=self.few, **_bar(self.statuses[path]))

    def __enter__(self) -> StudyDisplay:
        self.progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for path, status in self.statuses.items():
            if not status.ended:
                self._update(path)
        self.progress.stop()

    def __call__(self, running: Sequence[RunFolder]) -> None:
        before, self.at_work = self.at_work, {folder.path for folder in running}
        for path in before | self.at_work:
            self._update(path)

    def _update(self, path: Path) -> None:
        mark = _mark(self.folders[path], path in self.at_work)
        if self.marks.get(path) == mark:  # pools look several times a second, and a log may have thousands of lines
            return
        self.marks[path] = mark
        before, now = self.statuses[path], folder_status(self.folders[path], path in self.at_work)
        self.statuses[path] = now
        self.progress.update(self.bars[path], visible=self.few or path in self.at_work, **_bar(now))
        if self.progress.disable and now.phase != "starting" and (now.phase, now.ended) != (before.phase, before.ended):
            sys.stderr.write(f"{self.labels[path]}: {now.text}{_figures(now)}\n")
            sys.stderr.flush()


def _mark(folder: RunFolder, at_work: bool) -> Mark:
    """What is another when there is something new to tell of a run."""
    try:
        size = folder.metrics_file.stat().st_size
    except OSError:
        size = -1
    return at_work, size, (folder.path / "result.json").exists()


def folder_status(folder: RunFolder, at_work: bool | None = None) -> RunStatus:
    run = read_run(folder)
    assert run is not None, f"{folder.path} holds no run"
    return run_status(run, at_work)


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
