"""The pool: all runs are carried out by workers that stay, and a death takes no other run with it."""

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
from eureka.runs import Outcome, RunFolder
from eureka.study.plan import Study
from eureka.study.pool import LocalPool, check_failures, longest_first
from eureka.study.summary import summarise

GRID: dict[str, Sequence[object]] = {"training.seed": [0, 1], "attention.name": ["softmax", "norm_softmax"]}


@pytest.mark.parametrize("forks", [True, False])
def test_runs_of_the_pool_equal_runs_of_this_process_bit_for_bit(tiny: RunConfig, tmp_path: Path, forks: bool) -> None:
    folders = Study.over(tiny, GRID, tmp_path / "pool").prepare()
    assert LocalPool(2, forks).run(folders) == []
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


class Seen:
    """Remembers the processes of a pool, and kills one with a run at work, once."""

    def __init__(self, pool: LocalPool, kill: str | None = None) -> None:
        self.pool, self.kill = pool, kill
        self.workers: dict[int, None] = {}
        self.runs: dict[int, None] = {}

    def __call__(self, running: Sequence[RunFolder]) -> None:
        for worker in self.pool._running:
            self.workers[worker.process.pid] = None
            wait_until(lambda worker=worker: worker.run_pid is not None or worker.process.poll() is not None)  # type: ignore[misc]
            if worker.run_pid is None:
                continue
            self.runs[worker.run_pid] = None
            if self.kill is not None:
                wait_until(lambda: all(folder.metrics() for folder in running))
                os.kill(worker.run_pid if self.kill == "run" else worker.process.pid, signal.SIGKILL)
                self.kill = None


def test_a_worker_stays_and_every_run_is_a_process_of_its_own(tiny: RunConfig, tmp_path: Path) -> None:
    pool = LocalPool(1)
    folders = Study.over(tiny.but({"training.steps": 100}), {"training.seed": [0, 1, 2]}, tmp_path).prepare()
    assert pool.run(folders, seen := Seen(pool)) == []
    assert len(seen.workers) == 1
    assert len(seen.runs) == 3


@pytest.mark.parametrize(("killed", "workers"), [("run", 1), ("worker", 2)])
def test_a_kill_of_a_run_or_of_a_worker_loses_one_run_and_the_others_are_done(
    tiny: RunConfig, tmp_path: Path, killed: str, workers: int
) -> None:
    pool = LocalPool(1)
    folders = Study.over(tiny, {"training.steps": [200_000, 24]}, tmp_path).prepare()
    failures = pool.run(folders, seen := Seen(pool, kill=killed))
    assert [(failure.folder, failure.reason) for failure in failures] == [(folders[0], "its process was killed by signal 9")]
    assert [folder.result() is not None for folder in folders] == [False, True]
    assert len(seen.workers) == workers
    assert is_free(folders[0]), "a run whose worker is gone has stopped"


def test_a_worker_that_does_not_fork_leaves_after_a_failure_and_another_goes_on(tiny: RunConfig, tmp_path: Path) -> None:
    pool = LocalPool(1, forks=False)
    folders = Study.over(tiny.but({"training.steps": 100}), {"training.seed": [0, 1, 2]}, tmp_path).prepare()
    (folders[0].path / "config.json").write_text((folders[0].path / "config.json").read_text().replace('"tiles"', '"tyles"'))
    failures = pool.run(folders, seen := Seen(pool))
    assert [failure.reason.partition(";")[0] for failure in failures] == ["unknown task 'tyles'"]
    assert len(seen.workers) == 2
    assert all(folder.result() for folder in folders[1:])


def test_a_run_that_cannot_be_done_gives_its_reason(tiny: RunConfig, tmp_path: Path) -> None:
    folders = Study.over(tiny, {"training.seed": [0]}, tmp_path).prepare()
    with folders[0].held():
        failures = LocalPool(1).run(folders)
    assert [failure.reason for failure in failures] == [
        f"{folders[0].path}: another process is at work on this run; wait for it or choose another folder."
    ]


def test_a_run_that_another_process_ends_meanwhile_is_no_failure(tiny: RunConfig, tmp_path: Path) -> None:
    held, free = Study.over(tiny, {"training.seed": [0, 1]}, tmp_path).prepare()

    def end_it(running: Sequence[RunFolder]) -> None:
        if free in running and held.result() is None:  # one at a time: the other run was given up before
            held.write_result(Outcome("finished", 24, 1.0, 384, None, None, (), 0.1, 0.9))

    with held.held():
        assert LocalPool(1).run([held, free], end_it) == []
    assert free.result() is not None


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


def test_what_is_left_of_a_run_is_read_off_the_last_line_of_its_log(tiny: RunConfig, tmp_path: Path) -> None:
    begun, new = Study.over(tiny, {"training.steps": [80, 60]}, tmp_path).prepare()
    assert longest_first([new, begun]) == [begun, new]
    last = '{"step": 40, "train_loss": 1, "train_accuracy": 1, "validation_loss": 1, "validation_accuracy": 1, "lr": 1}'
    begun.metrics_file.write_text(f"a line that nobody reads\n{last}\n{{torn")
    assert longest_first([begun, new]) == [new, begun]
