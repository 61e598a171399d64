"""The rule that says when a run has had its Eureka-leap."""

from __future__ import annotations

from eureka.runs import Level, Metrics
from eureka.training.leaps import eureka_leap, find_leaps

TWO = [Level("the last step", 0.624, 0.55), Level("all steps", 0.0, 1.0)]
THREE = [Level("the last step", 0.624, 0.55), Level("the last 2 steps", 0.312, 0.775), Level("all steps", 0.0, 1.0)]


def curve(*values: tuple[float, float]) -> list[Metrics]:
    return [Metrics(25 * (i + 1), loss, accuracy, loss, accuracy, 1e-3) for i, (loss, accuracy) in enumerate(values)]


def test_a_run_that_sits_on_the_plateau_has_had_none() -> None:
    assert eureka_leap(curve(*[(0.64, 0.55)] * 40), TWO) is None


def test_the_step_is_the_first_with_halfway_accuracy_and_the_onset_the_first_below_the_plateau() -> None:
    leap = eureka_leap(curve((0.9, 0.5), (0.65, 0.55), (0.60, 0.60), (0.50, 0.70), (0.30, 0.80), (0.1, 0.95)), TWO)
    assert leap is not None
    assert (leap.onset, leap.step) == (75, 125)


def test_an_onset_that_was_lost_again_does_not_count() -> None:
    leap = eureka_leap(curve((0.60, 0.56), (0.66, 0.55), (0.61, 0.60), (0.3, 0.85)), TWO)
    assert leap is not None
    assert leap.onset == 75


def test_accuracy_alone_is_not_enough() -> None:
    assert eureka_leap(curve((0.7, 0.9)), TWO) is None


def test_halfway_exactly_counts_and_just_below_does_not() -> None:
    assert eureka_leap(curve((0.3, 0.775)), TWO) is not None
    assert eureka_leap(curve((0.3, 0.774)), TWO) is None


def test_a_three_step_task_has_two_leaps_and_only_the_second_solves_it() -> None:
    points = curve((0.63, 0.55), (0.4, 0.7), (0.32, 0.77), (0.32, 0.78), (0.1, 0.95))
    assert [(m.level, m.step) for m in find_leaps(points, THREE)] == [(0, 50), (1, 125)]
    assert eureka_leap(points[:4], THREE) is None
    assert eureka_leap(points, THREE) == find_leaps(points, THREE)[-1]


def test_no_points_no_moment() -> None:
    assert find_leaps([], TWO) == []
