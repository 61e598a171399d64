"""The bench of the pool: efficiency is the runs' own time over the workers' time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.pool import pool_cost
from eureka.errors import WorkError
from eureka.runs import Outcome, RunFolder


def ended(folders: Sequence[RunFolder], workers: int) -> None:
    for folder in folders:
        folder.write_result(Outcome("finished", 1, 1e-9, 1, None, None, (), 1.0, 0.5))


def test_efficiency_is_the_own_time_of_the_runs_over_that_of_the_workers() -> None:
    cost = pool_cost("ended at once", ended, runs=2, steps=1)
    assert cost.seconds_a_run == pytest.approx(1e-9)
    assert cost.efficiency == pytest.approx(2e-9 / (2 * cost.start_seconds), rel=1e-3)


def test_a_run_without_a_result_is_an_error() -> None:
    with pytest.raises(WorkError, match="2 of 2 runs did not finish"):
        pool_cost("nothing", lambda folders, workers: None, runs=2, steps=1)
