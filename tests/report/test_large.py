"""What reading for a report takes: runs are streamed and thinned; `benchmarks.reports` measures large studies."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path

import pytest

from benchmarks.reports import fill
from eureka.recipes import recipe
from eureka.report.report_run import ReportRun, read_rest
from eureka.runs import Run, read_run
from eureka.study.plan import Study

A_LINE, A_RUN = 150, 25_000
"""Bytes, at most: of the peak for each line that is read, and of what a run keeps whose curve is not drawn."""


def planted(folder: Path, lines: int) -> Run:
    made = Study.over(recipe("tiles"), {"training.seed": [0]}, folder, "tiles").prepare()[0]
    fill(made, lines, random.Random(0))
    run = read_run(made)
    assert run is not None
    return run


def read(run: Run, *, drawn: bool) -> tuple[ReportRun, int, int]:
    """A run with what the page shows, what it keeps, and the peak while it was read, in bytes."""
    gc.collect()
    tracemalloc.start()
    try:
        found = read_rest(run, drawn=drawn)
        return found, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


def test_what_a_drawn_run_keeps_does_not_grow_with_its_lines_and_reading_it_takes_little(tmp_path: Path) -> None:
    short, long = planted(tmp_path / "short", 2000), planted(tmp_path / "long", 4000)
    read(short, drawn=True)  # fills caches
    (one, kept, peak), (other, kept_long, peak_long) = read(short, drawn=True), read(long, drawn=True)
    assert len(other.metrics) < 1.2 * len(one.metrics) < 2000
    assert kept_long < 1.2 * kept
    assert (peak_long - peak) / 2000 < A_LINE


@pytest.mark.parametrize("lines", [50, 500])
def test_a_run_that_is_not_drawn_keeps_its_last_line_only(lines: int, tmp_path: Path) -> None:
    run = planted(tmp_path, lines)
    read(run, drawn=False)
    found, kept, _ = read(run, drawn=False)
    assert [line.step for line in found.metrics] == [lines * 25]
    assert kept < A_RUN
