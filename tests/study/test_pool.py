"""The pool: all runs are carried out, each in a process of its own, and a death takes no other with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from eureka.config import RunConfig
from eureka.errors import WorkError
from eureka.experiment import run
from eureka.runs import RunFolder
from eureka.study.plan import Study
from eureka.study.pool import LocalPool, check_failures, longest_first
from eureka.study.summary import summarise

GRID: dict[str, Sequence[object]] = {"training.seed": [0, 1], "attention.name": ["softmax", "norm_softmax"]}


def test_runs_of_the_pool_equal_runs_of_this_process_bit_for_bit(tiny: RunConfig, tmp_path: Path) -> None:
    folders = Study.over(tiny, GRID, tmp_path / "pool").prepare()
    assert LocalPool(2).run(folders) == []
    for config, folder in zip(Study.over(tiny, GRID, tmp_path).configs, folders, strict=True):
        run(config, tmp_path / "here" / folder.name)
        assert (tmp_path / "here" / folder.name / "metrics.jsonl").read_bytes() == folder.metrics_file.read_bytes()
    cells = summarise(folders).cells
    assert [(cell.fix, cell.seeds, cell.eureka_ratio) for cell in cells] == [
        ("softmax", [0, 1], 0.0),
        ("norm_softmax", [0, 1], 0.0),
    ]


def test_finished_runs_are_not_repeated(tiny: RunConfig, tmp_path: Path) -> None:
    folders = Study.over(tiny, {"training.seed": [0]}, tmp_path).prepare()
    LocalPool(1).run(folders)
    before = folders[0].metrics_file.stat().st_mtime_ns
    more = Study.over(tiny, {"training.seed": [0, 1]}, tmp_path).prepare()
    LocalPool(1).run(more)
    assert more[0].metrics_file.stat().st_mtime_ns == before
    assert all(folder.result() for folder in more)


class Sniper:
    """Kills the first worker it sees at work."""

    def __init__(self, pool: LocalPool) -> None:
        self.pool, self.shots = pool, 0

    def __call__(self, running: Sequence[RunFolder]) -> None:
        if running and not self.shots:
            self.shots = 1
            next(iter(self.pool._running)).kill()


def test_a_worker_that_dies_is_reported_and_takes_no_other_with_it(tiny: RunConfig, tmp_path: Path) -> None:
    folders = Study.over(tiny, GRID, tmp_path).prepare()
    pool = LocalPool(2)
    failures = pool.run(folders, Sniper(pool))
    assert [(failure.folder.path, failure.reason) for failure in failures] == [
        (folders[0].path, "its process was killed by signal 9")
    ]
    assert [folder.result() is not None for folder in folders] == [False, True, True, True]
    with pytest.raises(WorkError, match=r"^1 of 4 runs did not finish \(softmax-\S+: its process was killed by signal 9\); run"):
        check_failures(failures, len(folders))
    assert LocalPool(2).run(folders) == []


def test_a_run_that_cannot_be_done_gives_its_reason(tiny: RunConfig, tmp_path: Path) -> None:
    folders = Study.over(tiny, {"training.seed": [0]}, tmp_path).prepare()
    with folders[0].held():
        failures = LocalPool(1).run(folders)
    assert [failure.reason for failure in failures] == [
        f"{folders[0].path}: another process is at work on this run; wait for it or choose another folder."
    ]


def test_workers_stop_by_themselves_after_their_parent_was_killed(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"training.steps": 200_000})
    [folder] = Study.over(config, {"training.seed": [0]}, tmp_path).prepare()
    script = (
        "import sys; from pathlib import Path; from eureka.runs import RunFolder; from eureka.study.pool import LocalPool\n"
        f"LocalPool(1).run([RunFolder(Path({str(folder.path)!r}))])"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    wait_until(lambda: len(folder.metrics()) > 2)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    wait_until(lambda: is_free(folder))
    steps = [line.step for line in folder.metrics()]
    time.sleep(0.5)
    assert [line.step for line in folder.metrics()] == steps
    assert list(folder.checkpoints.iterdir())


def is_free(folder: RunFolder) -> bool:
    from eureka.errors import FolderBusyError

    try:
        with folder.held():
            return True
    except FolderBusyError:
        return False


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def test_the_pool_is_as_wide_as_the_machine() -> None:
    assert LocalPool().workers == len(os.sched_getaffinity(0))


def test_a_budget_ends_the_study_early_and_loses_nothing(tiny: RunConfig, tmp_path: Path) -> None:
    [folder] = Study.over(tiny.but({"training.steps": 200_000}), {"training.seed": [0]}, tmp_path).prepare()

    def watch(_running: Sequence[RunFolder]) -> None:
        wait_until(lambda: len(folder.metrics()) > 2)  # the budget is over when this returns, however slow the machine

    assert LocalPool(1).run([folder], watch, budget_seconds=1) == []
    assert folder.result() is None
    assert list(folder.checkpoints.iterdir())


def test_the_longest_runs_are_begun_first(tiny: RunConfig, tmp_path: Path) -> None:
    folders = Study.over(tiny, {"training.steps": [20, 80, 40]}, tmp_path).prepare()
    assert [config.steps for folder in longest_first(folders) if (config := folder.config())] == [80, 40, 20]
