"""Runs on a Ray cluster: each is a task, and a node that is lost costs only the time since its runs' last checkpoints.

The study folder must be reachable by the same path from every node, on a shared filesystem.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from typing import Any

from eureka.errors import MissingExtraError, RequestError
from eureka.registry import FOLDER, user_folder
from eureka.runs import RunFolder
from eureka.study.pool import Failure, Watch, longest_first

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
        task = self.ray.remote(num_cpus=1, max_retries=RETRIES)(run_on_node)
        waiting = longest_first(folder for folder in folders if folder.result() is None)
        pending = {task.remote(str(folder.path), user_folder()): folder for folder in waiting}
        failures: list[Failure] = []
        deadline = time.monotonic() + budget_seconds
        try:
            while pending and time.monotonic() < deadline:
                done, _ = self.ray.wait(list(pending), timeout=POLL_SECONDS)
                for reference in done:
                    failures += self._outcome(reference, pending.pop(reference))
                if watch:
                    watch([folder for folder in pending.values() if folder.metrics()])
        finally:
            for reference in pending:
                self.ray.cancel(reference, force=True)  # what is lost is the time since the last checkpoint
        return failures

    def _outcome(self, reference: Any, folder: RunFolder) -> list[Failure]:
        try:
            reason = self.ray.get(reference)
        except self.ray.exceptions.RayError as error:
            reason = _first_line(error)
        return [Failure(folder, reason)] if reason else []


def run_on_node(path: str, user_folder: str) -> str | None:
    """Carry out one run on the node where this is called; ``module:Class`` is looked for in `user_folder`.

    Returns why it failed, or None.
    """
    from pathlib import Path

    from eureka.config import run_config
    from eureka.errors import EurekaError, FolderBusyError
    from eureka.experiment import run

    os.environ[FOLDER] = user_folder
    folder = RunFolder(Path(path))
    for attempt in range(ATTEMPTS):
        try:
            config = folder.config()
            assert config is not None
            run(run_config(**config.parts), folder)
            return None
        except FolderBusyError as error:  # a node that Ray takes for lost may still hold the run
            if attempt == ATTEMPTS - 1:
                return str(error)
            time.sleep(1)
        except EurekaError as error:
            return str(error)
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
