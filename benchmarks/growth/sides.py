"""Before and after: the old way and the new way of doing a thing, both measured in this run."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import pool, probes, tasks
from benchmarks.growth.planted import finish, study_of
from eureka.cli.run_study import read_runs
from eureka.errors import RequestError
from eureka.runs import RunFolder, StoredConfig
from eureka.study.plan import Study, origin, run_name
from eureka.study.status import run_status


@dataclass(frozen=True)
class Sides:
    """One thing, done in two ways."""

    what: str
    unit: str
    before: float
    after: float


def both_sides(quick: bool, progress: Callable[[str], None]) -> list[Sides]:
    """Everything that was made faster, with its old way beside it."""
    progress("linear probes")
    [probe] = probes.run(((544, 10),), rounds=1)
    found = [Sides("a linear probe of 544 features and 10 classes", "seconds", probe.all_threads, probe.one_thread)]
    progress("pictures")
    with contextlib.suppress(RequestError):  # data that is not on this machine
        found.append(Sides(f"{tasks.BATCH} pictures of the main task", "seconds", *tasks.picture_sides()))
    progress("pools")
    stays, alone = pool.run(*((2, 20) if quick else (8, 150)))
    short = f"a study of {stays.runs} runs of {stays.seconds_a_run:.0f} s on {stays.workers} cores"
    found.append(Sides(f"{short}: what a run costs besides its training", "seconds", alone.start_seconds, stays.start_seconds))
    found.append(Sides(f"{short}: share of the ideal", "efficiency", alone.efficiency, stays.efficiency))
    for one in pool.first_steps():
        what = f"from the call to the end of the first step, {one.recipe}, all but a worker's first run"
        found.append(Sides(what, "seconds", one.process_a_run, one.later))
    progress("planning")
    return [*found, *studies(20 if quick else 400)]


def studies(runs: int) -> list[Sides]:
    """Planning by the clock on the wall, because it waits for the disk; status by processor time."""
    with tempfile.TemporaryDirectory() as place:
        before, after = study_of(runs, Path(place) / "before"), study_of(runs, Path(place) / "after")
        planning = Sides(
            f"plan a study of {runs} runs",
            "seconds",
            _seconds(lambda: _durable(before), time.perf_counter),
            _seconds(after.prepare, time.perf_counter),
        )
        folders = after.prepare()
        finish(folders)
        ended = read_runs(folders)
        status = Sides(
            f"status of {runs} ended runs",
            "seconds",
            _seconds(lambda: [(folder.metrics(), folder.levels()) for folder in folders], time.process_time),
            _seconds(lambda: [run_status(run) for run in ended], time.process_time),
        )
    return [planning, status]


def _durable(study: Study) -> None:
    """Every file of a plan waits for the disk."""
    for config in study.configs:
        folder = RunFolder(study.folder / run_name(config))
        folder.create()
        folder.write_config(StoredConfig(config.to_json()))
        folder.write_origin(origin("tiles", config))


def _seconds(job: Callable[[], object], clock: Callable[[], float]) -> float:
    begun = clock()
    job()
    return clock() - begun
