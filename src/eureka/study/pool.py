"""Pools bring runs to their end. The local one: a process of one thread for each run, as many at a time as there are cores."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from eureka.errors import WorkError
from eureka.registry import FOLDER, user_folder
from eureka.runs import RunFolder

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
    """Runs in processes of this machine; one that dies is reported and takes no other with it."""

    workers: int = field(default_factory=lambda: available_cores())
    _running: dict[subprocess.Popen[bytes], RunFolder] = field(default_factory=dict)
    _paused: dict[int, float] = field(default_factory=dict)
    """by process, since when it is paused; infinite once that was told"""

    def run(self, folders: Sequence[RunFolder], watch: Watch | None = None, budget_seconds: float = math.inf) -> list[Failure]:
        """Bring every run to its end, or as far as the budget lasts.

        An interruption stops the workers after a checkpoint and is passed on; calling again goes on where they were.
        """
        waiting = longest_first(folder for folder in folders if folder.result() is None)
        failures: list[Failure] = []
        deadline = time.monotonic() + budget_seconds
        try:
            while (waiting or self._running) and time.monotonic() < deadline:
                while waiting and len(self._running) < self.workers:
                    self._start(waiting.pop(0))
                if watch:
                    watch(list(self._running.values()))
                time.sleep(POLL_SECONDS)
                failures += self._collect()
                self._tell_paused()
        finally:
            self._stop()
        return failures

    def _start(self, folder: RunFolder) -> None:
        folder.check_links()
        # a session of its own: Ctrl-C reaches the parent alone, which then stops its workers in order
        with folder.worker_log.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "eureka.study.worker", str(folder.path), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", FOLDER: user_folder()},
                start_new_session=True,
            )
        self._running[process] = folder

    def _collect(self) -> list[Failure]:
        failures = []
        for process in [process for process in self._running if process.poll() is not None]:
            folder = self._running.pop(process)
            if folder.result() is None:
                failures.append(Failure(folder, _why(process.returncode, folder)))
        return failures

    def _tell_paused(self) -> None:
        """Say once of each worker that it has been paused for some time."""
        now = time.monotonic()
        for process, folder in self._running.items():
            if not is_paused(process.pid):
                self._paused.pop(process.pid, None)
            elif now - self._paused.setdefault(process.pid, now) > PAUSED_SECONDS:
                self._paused[process.pid] = math.inf
                _log.warning("%s: its process is paused; `kill -CONT %d` lets it go on", folder.name, process.pid)

    def _stop(self) -> None:
        for process in self._running:
            process.terminate()
            if is_paused(process.pid):
                process.send_signal(signal.SIGCONT)  # it saves its state and ends
        deadline = time.monotonic() + PATIENCE_SECONDS
        for process in self._running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running.clear()


def is_paused(pid: int) -> bool:
    """Whether a process was stopped by a signal, as Linux tells; elsewhere it is not known."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] in ("T", "t")


def longest_first(folders: Iterable[RunFolder]) -> list[RunFolder]:
    """In the order in which a pool should begin them: the most work first, so that no long run is left alone at the end."""
    return sorted(folders, key=lambda folder: -_work_left(folder))


def _work_left(folder: RunFolder) -> float:
    config, metrics = folder.config(), folder.metrics()
    assert config is not None, f"{folder.path} holds no run"
    size = config.flat["training.batch_size"] * config.flat.get("model.dim", 1) * config.flat.get("model.depth", 1)
    return float((config.steps - (metrics[-1].step if metrics else 0)) * size)


def _why(code: int, folder: RunFolder) -> str:
    if code < 0:
        return f"its process was killed by signal {-code}"
    if code > 128:
        return f"its process was stopped by signal {code - 128}"
    lines = folder.worker_log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with code {code}"


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_failures(failures: Sequence[Failure], total: int) -> None:
    """Raise when runs are missing, naming each and why."""
    if failures:
        reasons = "; ".join(f"{failure.folder.name}: {failure.reason}" for failure in failures)
        raise WorkError(f"{len(failures)} of {total} runs did not finish ({reasons}); run the same command again to go on.")
