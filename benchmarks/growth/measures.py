"""What is measured: attention, a step, a study, a report and detection, each over sizes."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.growth.planted import LINES, finish, study_of, tiles
from benchmarks.growth.series import Point, Series
from benchmarks.training import step_flops
from eureka.attention.operator import make_operator
from eureka.bench.memory import peak_megabytes
from eureka.bench.timing import Job, interleaved
from eureka.cli.run_study import bring_to_end, read_again, read_runs
from eureka.curves.detector import detect
from eureka.experiment import build
from eureka.report.write import write_report
from eureka.runs import PLANNED
from eureka.study.plan import Study
from eureka.study.pool import LocalPool
from eureka.study.status import run_status
from eureka.training.optimiser import make_optimiser

MODE = "forward+backward"
LONG = 4096
"""Tokens above which attention is timed once."""


def attention_over_tokens(op: str, lengths: Sequence[int]) -> Series:
    """One sample, 4 heads of 64 dimensions, forward and backward."""
    points = []
    for n in lengths:
        job = attention_jobs(op, n)[MODE]
        seconds = _once(job) if n > LONG else interleaved({MODE: job}, rounds=4, budget=5.0)[MODE]
        peaks = peak_megabytes("benchmarks.growth.measures:attention_jobs", op=op, n=n)
        points.append(Point(n, seconds, peaks[MODE]))
    return Series(f"attention, {op}", "tokens", tuple(points))


def _once(job: Job) -> float:
    begun = time.process_time()
    job()
    return time.process_time() - begun


def attention_jobs(op: str, n: int) -> dict[str, Job]:
    """SDPA or an operator on one sample; in a process of its own, for its memory."""
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 4, n, 64, generator=torch.Generator().manual_seed(i)).requires_grad_() for i in range(3))
    call = F.scaled_dot_product_attention if op == "sdpa" else make_operator(op, heads=4, head_dim=64, total_steps=100)

    def both() -> None:
        for x in (q, k, v):
            x.grad = None
        call(q, k, v).sum().backward()

    return {MODE: both}


def step_over(key: str, sizes: Sequence[int]) -> Series:
    """A training step of the recipe ``tiles`` with another width or depth."""
    jobs = {str(size): _step(key, size) for size in sizes}
    seconds = interleaved(jobs, rounds=3, budget=20.0)
    return Series("a training step", key, tuple(Point(size, seconds[str(size)]) for size in sizes))


def _step(key: str, size: int) -> Job:
    config = tiles().but({key: size})
    task, model = build(config)
    optimiser, generator = make_optimiser(model, config.training), torch.Generator().manual_seed(0)

    def step() -> None:
        batch = task.sample(config.training.batch_size, generator)
        optimiser.zero_grad()
        task.loss(model(batch.inputs), batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def step_operations(key: str, sizes: Sequence[int]) -> Series:
    """The same in floating-point operations of its matrix products, in place of seconds."""
    return Series("its matrix products", key, tuple(Point(size, step_flops(tiles().but({key: size}))) for size in sizes))


def study_over_runs(sizes: Sequence[int]) -> list[Series]:
    """Plan a study, plan it again when its runs have ended, ask how it is, and go on with it: nothing is trained.

    All folders stay until the last is measured: on ext4 a file that was just deleted makes every new one slower for a while.
    """
    found: dict[str, list[Point]] = {}
    with tempfile.TemporaryDirectory() as place:
        for size in sizes:
            for what, point in _study(size, Path(place) / str(size)).items():
                found.setdefault(what, []).append(point)
    return [Series(what, "runs", tuple(points)) for what, points in found.items()]


def _study(size: int, place: Path) -> dict[str, Point]:
    points: dict[str, Point] = {}

    def timed(what: str, job: Callable[[], object]) -> None:
        before, begun = _held(), time.process_time()
        job()
        points[what] = Point(size, time.process_time() - begun, max(0.1, _held() - before))

    bare, place = place / "bare", place / "study"
    bare.mkdir(parents=True)
    timed("the folders and files of a plan alone", lambda: _bare_files(size, bare))
    study = study_of(size, place)
    timed("plan a study", lambda: study_of(size, place).prepare())
    finish(study.prepare())
    timed("plan it again", lambda: study_of(size, place).prepare())
    timed("its status", lambda: [run_status(run) for run in read_runs(study.prepare())])
    timed("go on with it", lambda: _go_on(study))
    return points


def _bare_files(runs: int, place: Path) -> None:
    """What the file system takes of a plan: a folder a run and two files, written beside their names and renamed.

    Calls of the system and nothing else, so without `Path`.
    """
    content = b"x" * 1000
    for run in range(runs):
        folder = f"{place}{os.sep}{run}"
        os.mkdir(folder)  # noqa: PTH102
        for name in PLANNED:
            with open(f"{folder}{os.sep}.{name}", "xb") as file:  # noqa: PTH123
                file.write(content)
            os.replace(f"{folder}{os.sep}.{name}", f"{folder}{os.sep}{name}")  # noqa: PTH105


def _go_on(study: Study) -> None:
    runs = read_runs(study.prepare())
    bring_to_end(LocalPool(1), runs, 1.0)
    read_again(runs)


def _held() -> float:
    """Megabytes that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def report_over(sizes: Sequence[int], over: str) -> Series:
    """The page of a study with so many runs, or of 20 runs with so many lines."""
    points = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            runs, lines = (size, LINES) if over == "runs" else (20, size)
            finish(study_of(runs, folder / "study").prepare(), lines)
            begun = time.process_time()
            write_report([folder / "study"], folder / "report.html")
            points.append(Point(size, time.process_time() - begun))
    return Series("a report", over, tuple(points))


def detection_over_points(sizes: Sequence[int]) -> Series:
    """A curve with a plateau, a fall and noise."""
    points = []
    for size in sizes:
        rng = np.random.default_rng(0)
        losses = np.where(np.arange(size) < size // 2, 1.5, 0.1) + 0.02 * rng.standard_normal(size)
        seconds = interleaved({"detect": lambda losses=losses: detect(losses)}, rounds=2, budget=5.0)["detect"]  # type: ignore[misc]
        points.append(Point(size, seconds))
    return Series("detection", "points", tuple(points))
