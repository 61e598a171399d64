"""Runs on a Ray cluster: an actor for each core keeps a worker that stays, and a node that is lost costs only the time since its
runs' last checkpoints.

The study folder must be reachable by the same path from every node, on a shared filesystem.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from eureka.errors import MissingExtraError, RequestError
from eureka.registry import FOLDER, user_folder
from eureka.runs import RunFolder
from eureka.study.pool import Failure, Watch, longest_first, why, without_result
from eureka.study.worker import BUSY
from eureka.study.workers import News, Worker

POLL_SECONDS = 0.5
RETRIES = 20
"""How many lost nodes a single run survives."""
ATTEMPTS = 60
"""How often, a second apart, a node tries to get hold of a run that another process holds."""


class RayPool:
    """Runs on a cluster; the same calls as `LocalPool`."""

    def __init__(self, address: str | None = None) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        self.ray: Any = ray
        if not ray.is_initialized():
            self._connect(address)

    def _connect(self, address: str | None) -> None:
        try:
            self.ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RequestError(f"--on ray:{address}: no Ray cluster answers there ({_first_line(error)}).") from None

    @property
    def workers(self) -> int:
        return int(self.ray.cluster_resources().get("CPU", 1))

    def run(self, folders: Sequence[RunFolder], watch: Watch | None = None, budget_seconds: float = math.inf) -> list[Failure]:
        """Bring every run to its end, or as far as the budget lasts."""
        crew = Crew(self.ray)
        waiting = deque(longest_first(folder for folder in folders if folder.result() is None))
        failures: list[Failure] = []
        deadline = time.monotonic() + budget_seconds
        try:
            while (waiting or crew.running) and time.monotonic() < deadline:
                crew.grow(min(self.workers, len(waiting) + len(crew.running)))
                while waiting and crew.idle:
                    crew.begin(waiting.popleft())
                for folder, reason in crew.ended():
                    if reason is LOST:
                        waiting.appendleft(folder)
                    elif reason is not None:
                        failures.append(Failure(folder, reason))
                if watch:
                    watch([folder for folder in crew.running.values() if folder.metrics()])
        finally:
            crew.dismiss()
        return without_result(failures)


LOST = "its node was lost"


@dataclass
class Crew:
    """The actors of a pool: those that start, those without a run and those with one."""

    ray: Any
    running: dict[Any, RunFolder] = field(default_factory=dict)
    """by the reference of the call that carries it out"""
    idle: list[Any] = field(default_factory=list)
    _starting: dict[Any, Any] = field(default_factory=dict)
    """an actor by the reference that is there once it has started"""
    _at_work: dict[Any, Any] = field(default_factory=dict)
    _losses: Counter[Path] = field(default_factory=Counter)

    def grow(self, size: int) -> None:
        """Ask for as many actors as there are cores; one that the cluster has no room for yet stays among those that start."""
        actor = self.ray.remote(num_cpus=1, max_restarts=0)(NodeWorker)
        for _ in range(size - len(self.idle) - len(self._starting) - len(self._at_work)):
            made = actor.remote(user_folder())
            self._starting[made.ready.remote()] = made

    def begin(self, folder: RunFolder) -> None:
        actor = self.idle.pop()
        reference = actor.carry_out.remote(str(folder.path))
        self.running[reference], self._at_work[reference] = folder, actor

    def ended(self) -> list[tuple[RunFolder, str | None]]:
        """Wait a moment; the runs that have ended, and why they failed. An actor without a run has room for another."""
        done, _ = self.ray.wait([*self._starting, *self.running], timeout=POLL_SECONDS)
        found = []
        for reference in done:
            actor = self._starting.pop(reference, None) or self._at_work.pop(reference)
            folder = self.running.pop(reference, None)
            try:
                reason = self.ray.get(reference)
                self.idle.append(actor)
            except self.ray.exceptions.RayError as error:  # the node, or the process on it, is gone
                reason = self._lost(folder, error)
            if folder is not None:
                found.append((folder, reason))
        return found

    def _lost(self, folder: RunFolder | None, error: BaseException) -> str:
        if folder is None:
            return LOST
        self._losses[folder.path] += 1
        return LOST if self._losses[folder.path] <= RETRIES else _first_line(error)

    def dismiss(self) -> None:
        """End all actors; what is lost is the time since the last checkpoints."""
        for actor in [*self.idle, *self._starting.values(), *self._at_work.values()]:
            self.ray.kill(actor)


class NodeWorker:
    """A worker on a node. Its runs are processes of their own; `user_folder` is where ``module:Class`` is looked for."""

    def __init__(self, user_folder: str) -> None:
        os.environ[FOLDER] = user_folder
        self.news: SimpleQueue[News] = SimpleQueue()
        self.worker: Worker | None = None

    def ready(self) -> None:
        """Is answered once the actor has started."""

    def carry_out(self, path: str) -> str | None:
        """Bring a run to its end; why it failed, or None."""
        folder = RunFolder(Path(path))
        code = self._once(folder)
        for _ in range(ATTEMPTS):
            if code != BUSY:
                break
            time.sleep(1)  # a node that Ray takes for lost may still hold the run
            code = self._once(folder)
        return None if folder.result() is not None else why(code, folder)

    def end(self) -> None:
        """End the worker; where an actor is killed instead, the worker notices."""
        if self.worker is not None:
            self.worker.ask_to_stop()
            self.worker.wait()

    def _once(self, folder: RunFolder) -> int:
        if self.worker is None or not self.worker.begin(folder):
            self.news = SimpleQueue()  # what the one before may still say is of no interest
            self.worker = Worker(self.news, folder)
            self.worker.begin(folder)
        news = self.news.get()
        if not news.gone:
            return int(news.code or 0)
        ended, self.worker = self.worker.wait(), None
        return ended if news.code is None else news.code


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
