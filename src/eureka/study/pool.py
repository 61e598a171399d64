"""Pools bring runs to their end. The local one: workers of one thread that stay, as many as there are cores."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Protocol

from eureka.errors import WorkError
from eureka.runs import RunFolder
from eureka.study.workers import FORKS, News, Worker

POLL_SECONDS = 0.2
PATIENCE_SECONDS = 30.0
"""How long a worker may take to write its checkpoint when it is asked to stop."""
PAUSED_SECONDS = 10.0
"""How long a worker may be paused before this is told."""
_log = logging.getLogger(__name__)

Watch = Callable[[Sequence[RunFolder]], None]
"""Is called again and again with the runs at work."""


@dataclass(frozen=True)
class Failure:
    """A run whose worker ended without a result."""

    folder: RunFolder
    reason: str


class Pool(Protocol):
    """What brings runs to their end."""

    @property
    def workers(self) -> int:
        """how many runs at a time"""

    def run(
        self, folders: Sequence[RunFolder], watch: Watch | None = None, budget_seconds: float = math.inf
    ) -> list[Failure]: ...


@dataclass
class LocalPool:
    """Runs in processes of this machine. Workers stay from run to run; a run that dies is reported and takes no other with it."""

    workers: int = field(default_factory=lambda: available_cores())
    forks: bool = FORKS
    """whether each run is a process forked from its worker (`eureka.study.staying`)"""
    _running: dict[Worker, RunFolder] = field(default_factory=dict)
    _idle: list[Worker] = field(default_factory=list)
    _news: SimpleQueue[News] = field(default_factory=SimpleQueue)
    _paused: dict[int, float] = field(default_factory=dict)
    """by process, since when it is paused; infinite once that was told"""

    def run(self, folders: Sequence[RunFolder], watch: Watch | None = None, budget_seconds: float = math.inf) -> list[Failure]:
        """Bring every run to its end, or as far as the budget lasts.

        An interruption stops the workers after a checkpoint and is passed on; calling again goes on where they were.
        """
        waiting = deque(longest_first(folder for folder in folders if folder.result() is None))
        failures: list[Failure] = []
        deadline = time.monotonic() + budget_seconds
        try:
            while (waiting or self._running) and time.monotonic() < deadline:
                while waiting and len(self._running) < self.workers:
                    self._start(waiting.popleft())
                if watch:
                    watch(list(self._running.values()))
                failures += self._collect()
                self._tell_paused()
        finally:
            self._stop()
        return without_result(failures)

    def _start(self, folder: RunFolder) -> None:
        while self._idle:
            worker = self._idle.pop()
            if worker.begin(folder):
                self._running[worker] = folder
                return
        worker = Worker(self._news, folder, self.forks)
        worker.begin(folder)  # if it is gone already, its news say so
        self._running[worker] = folder

    def _collect(self) -> list[Failure]:
        """Wait for news, but not for long; the runs that have ended without a result."""
        failures = []
        with contextlib.suppress(Empty):
            news = self._news.get(timeout=POLL_SECONDS)
            while True:
                failures += self._hear(news)
                news = self._news.get_nowait()
        return failures

    def _hear(self, news: News) -> list[Failure]:
        worker, code = news.worker, news.code
        if news.gone:
            ended = worker.wait()
            code = ended if code is None else code
            if worker in self._idle:
                self._idle.remove(worker)
        elif worker in self._running:
            self._idle.append(worker)
        folder = self._running.pop(worker, None)
        if folder is None or code is None or folder.result() is not None:
            return []
        return [Failure(folder, why(code, folder))]

    def _tell_paused(self) -> None:
        """Say once of each worker that it has been paused for some time."""
        now, paused = time.monotonic(), {worker.is_paused(): folder for worker, folder in self._running.items()}
        self._paused = {pid: since for pid, since in self._paused.items() if pid in paused}
        for pid, folder in paused.items():
            if pid is not None and now - self._paused.setdefault(pid, now) > PAUSED_SECONDS:
                self._paused[pid] = math.inf
                _log.warning("%s: its process is paused; `kill -CONT %d` lets it go on", folder.name, pid)

    def _stop(self) -> None:
        workers = [*self._running, *self._idle]
        for worker in workers:
            worker.ask_to_stop()
        deadline = time.monotonic() + PATIENCE_SECONDS
        for worker in workers:
            try:
                worker.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
        self._running.clear()
        self._idle.clear()
        self._news = SimpleQueue()


def longest_first(folders: Iterable[RunFolder]) -> list[RunFolder]:
    """In the order in which a pool should begin them: the most work first, so that no long run is left alone at the end."""
    return sorted(folders, key=lambda folder: -_work_left(folder))


def _work_left(folder: RunFolder) -> float:
    config, last = folder.config(), folder.last_metrics()
    assert config is not None, f"{folder.path} holds no run"
    size = config.flat["training.batch_size"] * config.flat.get("model.dim", 1) * config.flat.get("model.depth", 1)
    return float((config.steps - (last[0].step if last else 0)) * size)


def why(code: int, folder: RunFolder) -> str:
    """Why a run has no result, from the exit code of its process and from its log."""
    if code < 0:
        return f"its process was killed by signal {-code}"
    if code > 128:
        return f"its process was stopped by signal {code - 128}"
    lines = folder.worker_log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with code {code}"


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def without_result(failures: Iterable[Failure]) -> list[Failure]:
    """Those whose run has no result now: another process that held it may have brought it to its end."""
    return [failure for failure in failures if failure.folder.result() is None]


def check_failures(failures: Sequence[Failure], total: int) -> None:
    """Raise when runs are missing, naming each and why."""
    if failures:
        reasons = "; ".join(f"{failure.folder.name}: {failure.reason}" for failure in failures)
        raise WorkError(f"{len(failures)} of {total} runs did not finish ({reasons}); run the same command again to go on.")
