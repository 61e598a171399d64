"""A progress bar for one run, on standard error when that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from eureka.runs import Record


class RunProgress:
    """Give it to a run as `on_log`."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._progress: Any = None
        self._task: Any = None

    def __enter__(self) -> RunProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = [
                BarColumn(),
                TextColumn("{task.completed:,}/{task.total:,}"),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
            ]
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._progress.add_task("starting", total=self.steps)
            self._progress.start()
        return self

    def __call__(self, record: Record) -> None:
        if self._progress is not None:
            text = f"loss {record['validation_loss']:.3f}, accuracy {record['validation_accuracy']:.3f}"
            self._progress.update(self._task, completed=record["step"], description=text)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()
