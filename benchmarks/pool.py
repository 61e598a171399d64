"""Studies of short runs: workers that stay, beside a new process for each run.

Efficiency is the ideal time over the time that the study took. The ideal is what training takes when a run has the machine to
itself, times the runs, shared by all workers: what a run loses because another one is at work beside it counts as lost.

``python -m benchmarks.pool [--runs N] [--steps N | --seconds S] [--json]``

``--runs 60 --seconds 10`` is sixty runs of ten seconds.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Annotated

import typer

from benchmarks.command import start
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.config import RunConfig
from eureka.errors import WorkError
from eureka.recipes import recipe
from eureka.runs import Outcome, RunFolder
from eureka.study.plan import Study
from eureka.study.pool import LocalPool, available_cores
from eureka.study.workers import News, Worker

ALONE = 3
"""Runs that are carried out one at a time, to know what training alone takes."""
TRIAL = 60
"""Steps from which the seconds of a step are known."""
ONE_STEP = {"training.steps": 1, "training.warmup": 0, "training.log_every": 1, "training.validation_samples": 1}
Carry = Callable[[Sequence[RunFolder], int], object]


@dataclass(frozen=True)
class PoolCost:
    """How well a way to carry out runs uses the cores."""

    way: str
    runs: int
    workers: int
    seconds_a_run: float
    """of training alone, when the run has the machine to itself"""
    seconds_together: float
    """the same beside other runs"""
    start_seconds: float
    """what a run costs a worker besides, on average; the first run of a worker that stays pays for all"""
    efficiency: float

    @property
    def pool_share(self) -> float:
        """Of the workers' time, what the runs trained; the rest is lost by the pool, not by sharing the machine's memory."""
        return self.seconds_together / (self.seconds_together + self.start_seconds)


@dataclass(frozen=True)
class FirstStep:
    """How long a run takes from the moment it is asked for to the end of its first step."""

    recipe: str
    process_a_run: float
    first_of_worker: float
    later: float
    """the slowest of the later runs of a worker that stays"""


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
    progress("one run at a time")
    own = training_seconds(min(ALONE, runs), steps)
    found = []
    for way, carry in WAYS.items():
        progress(way)
        found.append(pool_cost(way, carry, runs, steps, own))
    return found


def config_of(steps: int) -> RunConfig:
    """Runs that all have the same work."""
    return recipe("tiles").but({"training.steps": steps, "training.warmup": steps // 2, "training.early_stop": False})


def training_seconds(runs: int, steps: int) -> float:
    """Of one run that has the machine to itself: the mean of some, carried out one after the other."""
    return sum(outcome.seconds for outcome in _carried_out(staying, runs, steps, workers=1)[0]) / runs


def steps_of(seconds: float) -> int:
    """The steps of a run that trains for so long."""
    return max(1, round(TRIAL * seconds / training_seconds(1, TRIAL)))


def pool_cost(way: str, carry: Carry, runs: int, steps: int, alone: float | None = None) -> PoolCost:
    """alone   the training seconds of a run that has the machine to itself; without, those of these runs beside each other."""
    workers = min(available_cores(), runs)
    outcomes, wall = _carried_out(carry, runs, steps, workers)
    together = sum(outcome.seconds for outcome in outcomes) / runs
    alone = together if alone is None else alone
    return PoolCost(way, runs, workers, alone, together, workers * wall / runs - together, alone * runs / (workers * wall))


def _carried_out(carry: Carry, runs: int, steps: int, workers: int) -> tuple[list[Outcome], float]:
    """How the runs ended, and the seconds that it took."""
    with tempfile.TemporaryDirectory() as place:
        folders = Study.over(config_of(steps), {"training.seed": list(range(runs))}, Path(place)).prepare()
        begun = time.perf_counter()
        carry(folders, workers)
        wall = time.perf_counter() - begun
        outcomes = [outcome for folder in folders if (outcome := folder.result()) is not None]
    if len(outcomes) < runs:
        raise WorkError(f"{runs - len(outcomes)} of {runs} runs did not finish.")
    return outcomes, wall


def first_step(name: str, later: int = 3) -> FirstStep:
    """Runs of one step that log it and validate on one sample: their log is written last when the first step has ended."""
    config = recipe(name).but(ONE_STEP)
    with tempfile.TemporaryDirectory() as place:
        folders = Study.over(config, {"training.seed": list(range(later + 2))}, Path(place)).prepare()
        alone = until_first_step(folders[0], lambda: _alone(folders[0]))
        news: SimpleQueue[News] = SimpleQueue()
        begun = time.time()
        worker = Worker(news, folders[1])
        try:
            first = until_first_step(folders[1], lambda: _told(worker, folders[1], news), begun)
            others = [until_first_step(folder, lambda folder=folder: _told(worker, folder, news)) for folder in folders[2:]]  # type: ignore[misc]
        finally:
            worker.wait()
    return FirstStep(name, alone, first, max(others))


def _told(worker: Worker, folder: RunFolder, news: SimpleQueue[News]) -> None:
    worker.begin(folder)
    news.get()


def until_first_step(folder: RunFolder, carry_out: Callable[[], object], begun: float | None = None) -> float:
    """Seconds from the call, or from `begun`, until the log was written last."""
    begun = time.time() if begun is None else begun
    carry_out()
    if folder.result() is None:
        raise WorkError(f"{folder.name} did not finish.")
    return folder.metrics_file.stat().st_mtime - begun


def first_steps(progress: Callable[[str], None] = lambda line: None) -> list[FirstStep]:
    """Of a task without data, and of one with; the latter only where its data is on this machine."""
    found = []
    for name in ("tiles", "small/main"):
        progress(f"first step of {name}")
        with contextlib.suppress(WorkError, subprocess.CalledProcessError):
            found.append(first_step(name))
    return found


def main(
    json: JsonOption = False,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs of the study.")] = 12,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Steps of a run.")] = 400,
    seconds: Annotated[
        float | None, typer.Option("--seconds", metavar="S", min=0.1, help="Steps for so many seconds, in place of --steps.")
    ] = None,
) -> None:
    """How well workers that stay use the cores in a study of short runs, and how soon a run begins, beside a process a run."""
    starts = first_steps(progress=say)
    found = run(runs, steps if seconds is None else steps_of(seconds), progress=say)
    if json:
        print_json(
            {
                "rows": [asdict(cost) | {"pool_share": cost.pool_share} for cost in found],
                "first_steps": [asdict(one) for one in starts],
            }
        )
        return
    print_table(
        ["way", "runs", "workers", "seconds a run", "together", "besides", "share spent training", "efficiency"],
        [
            (
                c.way,
                str(c.runs),
                str(c.workers),
                f"{c.seconds_a_run:.1f}",
                f"{c.seconds_together:.1f}",
                f"{c.start_seconds:.2f}",
                f"{c.pool_share:.3f}",
                f"{c.efficiency:.3f}",
            )
            for c in found
        ],
    )
    print_table(
        ["seconds to the end of the first step", "a process a run", "first of a worker that stays", "later ones, at most"],
        [(s.recipe, f"{s.process_a_run:.2f}", f"{s.first_of_worker:.2f}", f"{s.later:.2f}") for s in starts],
    )


if __name__ == "__main__":
    start(main)
