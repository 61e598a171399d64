"""A study that is followed: its folder is looked at again and again, and only what has changed is read. Nothing is written.

The folder may be one that another machine writes. Links in it that lead elsewhere are not followed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from eureka.errors import DamagedRunError, EurekaError
from eureka.formats import plural
from eureka.report.live.state import LiveState, Seen, live_state
from eureka.report.page import Page, render_live
from eureka.report.write import report_page
from eureka.runs import RunFolder, find_runs, read_run
from eureka.study.status import run_status
from eureka.study.summary import summarise

PAUSE = 1.0
"""Seconds between two looks at the folder, at least."""
REST = 4.0
"""A pause is this many times as long as the work before it, so that the cores are left to the runs."""
MEMORY = 60
"""Looks that the pace is taken from."""
READ = ("config.json", "task.json", "metrics.jsonl", "attention.jsonl", "attention", "result.json", "probes.json", "start.json")
"""What a page is made of, in a run folder."""

Stamp = tuple[tuple[int, int], ...]
"""Time and size of each file that is read."""


@dataclass(frozen=True)
class Looked:
    """What a look at a run saw, and what its files were then."""

    stamp: Stamp
    at_work: bool
    seen: Seen | None
    problem: str = ""


class Paced:
    """Lets something be made anew only after a pause that is in proportion to the work."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._next = 0.0

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next

    @property
    def pause(self) -> float:
        return max(PAUSE, REST * self.seconds)

    def done(self, begun: float) -> None:
        self.seconds = time.monotonic() - begun
        self._next = time.monotonic() + self.pause


class LiveStudy:
    """The study of a folder. Several threads may ask; one at a time looks."""

    def __init__(self, folder: Path, title: str) -> None:
        self.folder, self.title = folder, title
        self._root = folder.resolve()
        self._lock = Lock()
        self._looks, self._pages = Paced(), Paced()
        self._known: dict[Path, Looked] = {}
        self._steps: deque[tuple[float, int]] = deque(maxlen=MEMORY)
        self._state: LiveState | None = None
        self._page: tuple[str, Page | str] | None = None
        """the mark of the state that a page was made of, and the page; a sentence where none can be made"""

    def state(self) -> LiveState:
        """How the study is doing, as of a moment ago."""
        with self._lock:
            return self._look()

    def document(self, *, whole: bool) -> str:
        """The page; without its scripts, which the browser has already, unless it is `whole`."""
        with self._lock:
            mark, page = self._newest_page(self._look())
        return render_live(page, title=self.title, mark=mark, whole=whole)

    def _look(self) -> LiveState:
        if self._state is None or self._looks.due:
            begun = time.monotonic()
            self._state = self._read()
            self._looks.done(begun)
        return self._state

    def _read(self) -> LiveState:
        folders = find_runs(self._root)
        inside = [run for run in folders if self._is_inside(run)]
        self._known = {run.path: self._run(run) for run in inside}
        looked = list(self._known.values())
        seen = [one.seen for one in looked if one.seen is not None]
        unreadable = [(path.name, one.problem) for path, one in self._known.items() if one.problem]
        self._steps.append((time.monotonic(), sum(status.step for _, status in seen)))
        away = len(folders) - len(inside)
        note = f"{plural(away, 'run')} left out: links in {'its folder' if away == 1 else 'their folders'} lead elsewhere."
        marks = {path: one.stamp for path, one in self._known.items()}
        return live_state(
            seen,
            unreadable,
            mark=hashlib.sha256(repr(sorted(marks.items())).encode()).hexdigest()[:16],
            note=note if away else "",
            pace=self._pace(),
            pause=self._looks.pause,
        )

    def _pace(self) -> float | None:
        (begun, before), (now, after) = self._steps[0], self._steps[-1]
        return (after - before) / (now - begun) if now > begun and after > before else None

    def _run(self, folder: RunFolder) -> Looked:
        """A run as it is now; its files are read only if one of them has changed."""
        known, stamp, at_work = self._known.get(folder.path), _stamp(folder), folder.at_work()
        if known is not None and (known.stamp, known.at_work) == (stamp, at_work):
            return known
        try:
            run = read_run(folder)
            if run is not None and run.outcome is not None:
                folder.metrics()  # its status needs none, but the page does
            return Looked(stamp, at_work, None if run is None else (run, run_status(run, at_work)))
        except DamagedRunError as error:
            return Looked(stamp, at_work, None, str(error))

    def _is_inside(self, folder: RunFolder) -> bool:
        """Whether all that would be read lies in the folder of the study."""
        places = (folder.path, folder.path / "attention")
        links = [entry.path for place in places for entry in _entries(place) if entry.is_symlink()]
        return all(Path(link).resolve().is_relative_to(self._root) for link in links)

    def _newest_page(self, state: LiveState) -> tuple[str, Page | str]:
        if self._page is None or (self._page[0] != state.mark and self._pages.due):
            begun = time.monotonic()
            self._page = state.mark, self._make_page()
            self._pages.done(begun)
        return self._page

    def _make_page(self) -> Page | str:
        folders = [RunFolder(path) for path, one in self._known.items() if one.seen is not None]
        if not folders:
            return "There are no runs here yet."
        try:
            return report_page(summarise(folders), self.folder / "report.html", title=self.title, folders=[self.folder])
        except EurekaError as error:
            return f"The report cannot be made: {error}"


def _stamp(folder: RunFolder) -> Stamp:
    return tuple(_time_and_size(folder.path / name) for name in READ)


def _time_and_size(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError:
        return []
