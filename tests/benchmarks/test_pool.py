"""The bench of the pool: efficiency is the runs' own time over the workers' time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.pool import pool_cost, until_first_step
from eureka.errors import WorkError
from eureka.runs import Outcome, RunFolder


def ended(folders: Sequence[RunFolder], workers: int) -> None:
    for folder in folders:
        folder.write_result(Outcome("finished", 1, 1e-9, 1, None, None, (), 1.0, 0.5))


def test_efficiency_is_the_own_time_of_the_runs_over_that_of_the_workers() -> None:
    cost = pool_cost("ended at once", ended, runs=2, steps=1)
    assert cost.seconds_a_run == pytest.approx(1e-9)
    assert cost.efficiency == pytest.approx(2e-9 / (2 * cost.start_seconds), rel=1e-3)


def test_the_ideal_is_what_training_takes_alone() -> None:
    beside, ideal = (pool_cost("ended at once", ended, 2, 1, alone) for alone in (None, 1e-8))
    assert beside.seconds_a_run == pytest.approx(1e-9)
    assert ideal.seconds_a_run == 1e-8
    assert ideal.efficiency * (ideal.start_seconds + 1e-9) == pytest.approx(1e-8)


def test_the_first_step_has_ended_when_the_log_is_written(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)

    def carry_out() -> None:
        folder.metrics_file.touch()
        os.utime(folder.metrics_file, (0, 1_000.5))
        ended([folder], 1)

    assert until_first_step(folder, carry_out, begun=1_000.0) == pytest.approx(0.5)
    with pytest.raises(WorkError, match="nothing did not finish"):
        until_first_step(RunFolder(tmp_path / "nothing"), lambda: None)


def test_a_run_without_a_result_is_an_error() -> None:
    with pytest.raises(WorkError, match="2 of 2 runs did not finish"):
        pool_cost("nothing", lambda folders, workers: None, runs=2, steps=1)
