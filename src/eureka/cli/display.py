"""What a study looks like while it runs: a live table in a terminal, a line for each event elsewhere. All on standard error."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from eureka.runs import Record, RunFolder
from eureka.study.statistics import differing_keys, flatten
from eureka.study.status import RunStatus, run_status

if TYPE_CHECKING:
    from rich.console import Group

STYLES = {"eureka": "bold green", "ended": "", "plateau": "yellow", "learning": "cyan", "waiting": "dim", "diverged": "red"}


class StudyDisplay:
    """Give it to a pool as `watch`; within ``with`` it draws."""

    def __init__(self, folders: Sequence[RunFolder]) -> None:
        self.folders = folders
        self.labels = dict(zip((folder.path for folder in folders), labels(folders), strict=True))
        self.statuses = {folder.path: run_status(folder) for folder in folders}
        self.at_work: set[Any] = set()
        self._live: Any = None

    def __enter__(self) -> StudyDisplay:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=8, transient=True, get_renderable=self._draw)
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for folder in self.folders:
            self._read(folder)
        if self._live is not None:
            self._live.stop()

    def __call__(self, running: Sequence[RunFolder]) -> None:
        just_left = self.at_work - {folder.path for folder in running}
        self.at_work = {folder.path for folder in running}
        for folder in self.folders:
            if folder.path in self.at_work or folder.path in just_left:
                self._read(folder)

    def _read(self, folder: RunFolder) -> None:
        before, now = self.statuses[folder.path], run_status(folder)
        self.statuses[folder.path] = now
        if self._live is None and (now.phase, now.ended) != (before.phase, before.ended):
            sys.stderr.write(f"{self.labels[folder.path]}: {now.text}{_detail(now)}\n")
            sys.stderr.flush()

    def _draw(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        for column, side in (
            ("run", "left"),
            ("", "left"),
            ("step", "right"),
            ("loss", "right"),
            ("accuracy", "right"),
            ("", "left"),
        ):
            table.add_column(column, justify=side)  # type: ignore[arg-type]
        for folder in self.folders:
            status = self.statuses[folder.path]
            bar = ProgressBar(total=status.steps, completed=status.step if not status.ended else status.steps, width=20)
            text = Text("starting" if self._is_starting(folder) else status.text, STYLES[status.phase])
            table.add_row(
                Text(self.labels[folder.path]), bar, f"{status.step:,}", _number(status.loss), _number(status.accuracy), text
            )
        ended = sum(status.ended for status in self.statuses.values())
        return Group(table, Text(f"{ended} of {len(self.folders)} runs ended · Ctrl-C stops, the same command goes on", "dim"))

    def _is_starting(self, folder: RunFolder) -> bool:
        return folder.path in self.at_work and self.statuses[folder.path].phase == "waiting"


def labels(folders: Sequence[RunFolder]) -> list[str]:
    """The runs as people speak of them: the fix, whatever distinguishes runs of one fix, and the seed."""
    configs = [folder.config() or {} for folder in folders]
    keys = differing_keys(configs)
    return [_label(config, keys) for config in configs]


def _label(config: Record, keys: Sequence[str]) -> str:
    flat = flatten(config)
    others = [f"{key if key.endswith('.name') else key.partition('.')[2]} {flat[key]}" for key in keys if key in flat]
    return ", ".join([flat["attention.name"], *others, f"lr {flat['training.lr']:g}", f"seed {flat['training.seed']}"])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _detail(status: RunStatus) -> str:
    if status.loss is None or status.accuracy is None:
        return ""
    return f" (step {status.step:,}, loss {status.loss:.3f}, accuracy {status.accuracy:.3f})"
