"""The page of costs: exponents are slopes, planted studies are what runs write, and every table is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.growth.floors import Floor
from benchmarks.growth.measures import detection_over_points, report_over, step_operations, study_over_runs
from benchmarks.growth.page import Growth, page
from benchmarks.growth.planted import finish, study_of
from benchmarks.growth.series import Point, Series
from benchmarks.growth.sides import Sides, studies
from benchmarks.tasks import SamplingSpeed
from benchmarks.training import LoopCost, Shares
from eureka.runs import read_run
from eureka.study.status import run_status


def series(what: str, over: str, power: float) -> Series:
    return Series(what, over, tuple(Point(n, 0.001 * n**power, float(n)) for n in (10, 100, 1000)))


def test_the_exponent_is_that_of_a_power_law_and_tells_larger_sizes() -> None:
    one = series("a report", "runs", 1.5)
    assert one.time_exponent == pytest.approx(1.5)
    assert one.memory_exponent == pytest.approx(1.0)
    assert one.cost_at(10_000) == pytest.approx(0.001 * 10_000**1.5)


def test_matrix_products_grow_with_the_depth_as_such() -> None:
    assert step_operations("model.depth", (2, 4, 8)).time_exponent == pytest.approx(1.0, abs=0.1)


def test_planted_runs_have_ended_with_a_leap(tmp_path: Path) -> None:
    [first, *others] = study_of(4, tmp_path).prepare()
    finish([first, *others])
    run = read_run(first)
    assert run is not None
    assert run_status(run).text == "Eureka at step 750"
    assert len(others) == 3


def test_studies_reports_and_detection_are_measured_over_sizes() -> None:
    found = [
        *study_over_runs((4, 8)),
        report_over((4, 8), "runs"),
        report_over((10, 20), "lines"),
        detection_over_points((200, 400)),
    ]
    study = ["the folders and files of a plan alone", "plan a study", "plan it again", "its status", "go on with it"]
    assert [one.what for one in found] == [*study, "a report", "a report", "detection"]
    assert all(point.cost > 0 for one in found for point in one.points)


def test_both_sides_of_planning_and_status_are_measured() -> None:
    planning, status = studies(8)
    assert min(planning.before, planning.after, status.before, status.after) > 0


def test_the_page_has_every_table_and_the_large_study_on_paper() -> None:
    needed = [series(what, "runs", 1.0) for what in ("plan a study", "go on with it", "a report")]
    step = LoopCost("tiles", 256, 1.0, 0.5, Shares(0.8, 0.7, 0.6), 5_000.0)
    pictures = SamplingSpeed("main", 1_000, 12.0, 18.0, 27.0, 0.01)
    sides, floors = [Sides("a thing", "seconds", 4.0, 2.0)], [Floor(197, "none", 1.3, 1.2, 1.4, 1.1, 0.9)]
    text = page(Growth(sides, floors, [step], [pictures], needed))
    assert "| tiles | 0.50 | 0.80 | 0.70 | 0.60 |" in text
    assert "Samples of the task main are made 12.0 × as fast as one at a time. It would be 18.0 × if" in text
    assert "| a thing | seconds | 4 | 2 | 2 |" in text
    assert "| 197 | none | 1.30 (1.20 to 1.40) | 1.10 | 0.90 |" in text
    assert "| a report | runs | 10 to 1,000 | 0.01 0.1 1 | 10 100 1000 | 1.00 | 1.00 |" in text
    assert "1.4 TB" in text
