"""Studies of short runs: workers that stay, beside a new process for each run.

Efficiency is the ideal time (the runs' own seconds, shared by all workers) over the time that the study took.

``python -m benchmarks.pool [--runs N] [--steps N] [--json]``
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import start
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.errors import WorkError
from eureka.recipes import recipe
from eureka.runs import RunFolder
from eureka.study.plan import Study
from eureka.study.pool import LocalPool, available_cores

Carry = Callable[[Sequence[RunFolder], int], object]


@dataclass(frozen=True)
class PoolCost:
    """How well a way to carry out runs uses the cores."""

    way: str
    runs: int
    workers: int
    seconds_a_run: float
    """of training alone"""
    start_seconds: float
    """what a run costs a worker besides, on average; the first run of a worker that stays pays for all"""
    efficiency: float


def staying(folders: Sequence[RunFolder], workers: int) -> None:
    LocalPool(workers).run(folders)


def process_a_run(folders: Sequence[RunFolder], workers: int) -> None:
    """What the pool did before its workers stayed."""
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(_alone, folders))


def _alone(folder: RunFolder) -> None:
    command = [sys.executable, "-m", "eureka.study.worker", str(folder.path), str(os.getpid())]
    subprocess.run(command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL)


WAYS: dict[str, Carry] = {"workers that stay": staying, "a process a run": process_a_run}


def run(runs: int, steps: int, progress: Callable[[str], None] = lambda line: None) -> list[PoolCost]:
    """Each way carries out the same runs."""
    found = []
    for way, carry in WAYS.items():
        progress(way)
        found.append(pool_cost(way, carry, runs, steps))
    return found


def pool_cost(way: str, carry: Carry, runs: int, steps: int) -> PoolCost:
    config = recipe("tiles").but({"training.steps": steps, "training.warmup": steps // 2, "training.early_stop": False})
    workers = min(available_cores(), runs)
    with tempfile.TemporaryDirectory() as place:
        folders = Study.over(config, {"training.seed": list(range(runs))}, Path(place)).prepare()
        begun = time.perf_counter()
        carry(folders, workers)
        wall = time.perf_counter() - begun
        outcomes = [outcome for folder in folders if (outcome := folder.result()) is not None]
    if len(outcomes) < runs:
        raise WorkError(f"{runs - len(outcomes)} of {runs} runs did not finish.")
    own = sum(outcome.seconds for outcome in outcomes)
    return PoolCost(way, runs, workers, own / runs, (workers * wall - own) / runs, own / (workers * wall))


def main(
    json: JsonOption = False,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs of the study.")] = 12,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of a run.")] = 400,
) -> None:
    """How well workers that stay use the cores in a study of short runs, beside a process a run."""
    found = run(runs, steps, progress=say)
    if json:
        print_json({"rows": [asdict(cost) for cost in found]})
        return
    print_table(
        ["way", "runs", "workers", "seconds a run", "besides", "efficiency"],
        [
            (c.way, str(c.runs), str(c.workers), f"{c.seconds_a_run:.1f}", f"{c.start_seconds:.2f}", f"{c.efficiency:.2f}")
            for c in found
        ],
    )


if __name__ == "__main__":
    start(main)
