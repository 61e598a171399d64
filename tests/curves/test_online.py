"""The online detector: the same answer while training runs, in constant memory."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

from benchmarks.detector_plateaus import planted_count
from benchmarks.detector_quality import announced, online_figures
from eureka.curves import online
from eureka.curves.detector import detect
from eureka.curves.grid import Array
from eureka.curves.moment import EurekaMoment
from eureka.curves.online import OnlineDetector
from eureka.curves.sketch import Difficulty
from eureka.curves.synthetic import plant
from eureka.curves.thresholds import THRESHOLDS
from eureka.errors import RequestError


def run(values: Array) -> list[tuple[str, float]]:
    detector = OnlineDetector()
    events = [detector.update(step, value) for step, value in enumerate(values.tolist())]
    return [(event.name, event.step) for event in events if event is not None]


@pytest.mark.parametrize("points", [300, 2000, 30_000])
def test_it_tells_of_the_plateau_then_of_the_moment_after_its_end(points: int) -> None:
    t = np.arange(points)
    at, time = 0.6 * points, 0.01 * points
    values = 2.0 - 1.5 / (1.0 + np.exp(-(t - at) / time)) + 0.03 * np.random.default_rng(0).standard_normal(points)
    events = run(values)
    assert [name for name, _ in events][:2] == ["plateau_entered", "eureka"]
    assert [name for name, _ in events].count("eureka") == 1
    end = at + 3 * time
    assert end < events[1][1] < end + 0.15 * points


def test_a_loss_that_never_changes_is_on_a_plateau_after_a_hundred_points() -> None:
    assert run(np.full(99, 2.0)) == []
    ((name, step),) = run(np.full(500, 2.0))
    assert name == "plateau_entered"
    assert step < 130


def test_it_hardly_ever_raises_an_alarm_where_there_is_no_moment() -> None:
    rng = np.random.default_rng(4)
    kinds = ["power_law", "flat", "slide", "exponential", "spikes"]
    alarms = [len(announced(plant(kind, rng, Difficulty(noise=0.03)))) for kind in kinds for _ in range(10)]
    assert sum(alarms) <= 1


def test_it_finds_what_the_batch_detector_finds_soon_after_the_true_end() -> None:
    figures = online_figures(5, seed=7)
    assert figures.found >= 0.85 * figures.truths
    assert figures.false_alarms <= 0.05 * figures.curves
    assert np.median(figures.delays) < 1.5


@pytest.mark.parametrize("kind", ["power_law", "slide", "warm_down"])
def test_hardly_any_plateau_is_entered_during_a_descent(kind: str) -> None:
    counted = planted_count([kind], 6, seed=1)
    assert counted.false <= 1  # in its first points a slow slide cannot be told from noise


def test_plateaus_are_entered_where_hindsight_sees_them() -> None:
    counted = planted_count(["single", "staircase", "exponential", "flat"], 12, seed=2)  # fewer are too few for a tenth
    assert counted.plateaus > 40
    assert counted.noticed >= 0.7 * counted.plateaus
    assert counted.false <= 0.1 * counted.plateaus


@pytest.mark.parametrize("power", [0.3, 0.5, 0.8])
def test_a_language_model_that_learns_has_no_event(power: float) -> None:
    t = np.arange(6000.0)
    values = 3.0 + 7.0 * (1.0 + t / 30.0) ** -power + 0.03 * np.random.default_rng(0).standard_normal(len(t))
    assert run(values) == []


def test_its_memory_does_not_grow() -> None:
    detector = OnlineDetector()
    rng = np.random.default_rng(0)
    sizes = []
    for step, value in enumerate((2.0 + 0.1 * rng.standard_normal(40_000)).tolist()):
        detector.update(step, value)
        if step in (2_000, 39_999):
            sizes.append(len(pickle.dumps(detector)))
    assert sizes[1] < 1.3 * sizes[0]
    assert len(detector._sums) <= 2 * THRESHOLDS.online_bins + 1


def leaping(points: int = 1200) -> list[float]:
    t = np.arange(points)
    values = 2.0 - 1.9 / (1.0 + np.exp(-(t - 700.0) / 10.0)) + 0.02 * np.random.default_rng(0).standard_normal(points)
    return list(values.tolist())


@pytest.mark.parametrize("saved", [3, 400, 703, 1000])
def test_a_detector_that_is_saved_as_json_and_restored_continues_as_the_whole_would(saved: int) -> None:
    values, first, second = leaping(), OnlineDetector(min_confidence=0.6), OnlineDetector()
    events = [first.update(step, value) for step, value in enumerate(values[:saved])]
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    events += [second.update(step, value) for step, value in enumerate(values[saved:], start=saved)]
    whole = OnlineDetector(min_confidence=0.6)
    assert events == [whole.update(step, value) for step, value in enumerate(values)]
    assert sum(event is not None for event in events) >= 2
    for name, value in vars(whole).items():
        assert np.array_equal(getattr(second, name), value), name


def test_a_state_is_of_the_moment_and_does_not_follow_the_detector() -> None:
    detector = OnlineDetector()
    for step, value in enumerate(leaping()[:705]):  # in the middle of a fall
        detector.update(step, value)
    state = detector.state_dict()
    text = json.dumps(state)
    for step, value in enumerate(leaping()[705:], start=705):
        detector.update(step, value)
    assert json.dumps(state) == text != json.dumps(detector.state_dict())


def test_the_state_of_something_else_is_refused() -> None:
    state = OnlineDetector().state_dict()
    with pytest.raises(RequestError, match="not the state of an OnlineDetector of this version: _told is"):
        OnlineDetector().load_state_dict({name: value for name, value in state.items() if name != "_told"})


def test_values_that_are_not_finite_are_ignored() -> None:
    detector = OnlineDetector()
    t = np.arange(2000)
    values = 2.0 - 1.5 / (1.0 + np.exp(-(t - 1200.0) / 10.0))
    values[::50] = np.nan
    values[25::50] = np.inf
    events = [event for step, value in zip(t, values.tolist(), strict=True) if (event := detector.update(float(step), value))]
    assert [event.name for event in events].count("eureka") == 1


def full_detections(values: list[float], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of means that the full detector got, each time it ran while the values were fed."""
    sizes: list[int] = []

    def counted(given: Array, steps: Array, **options: Any) -> list[EurekaMoment]:
        sizes.append(len(given))
        return detect(given, steps, **options)

    monkeypatch.setattr(online, "detect", counted)
    detector = OnlineDetector()
    for step, value in enumerate(values):
        detector.update(step, value)
    return sizes


def test_the_full_detector_runs_rarely_and_on_few_means(monkeypatch: pytest.MonkeyPatch) -> None:
    t = np.arange(20_000)
    noise = 0.05 * np.random.default_rng(0).standard_normal(len(t))
    stairs = 20.0 - np.floor(t / 100.0) / 10.0  # something to look at all the time
    sizes = full_detections((stairs + noise).tolist(), monkeypatch)
    assert 4 < len(sizes) <= THRESHOLDS.online_burst + len(t) / THRESHOLDS.online_cost
    assert max(sizes) <= 2 * THRESHOLDS.online_bins


def test_the_full_detector_runs_only_a_few_times_for_one_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    t = np.arange(20_000)
    values = 2.0 - 1.5 / (1.0 + np.exp(-(t - 12_000.0) / 100.0)) + 0.05 * np.random.default_rng(0).standard_normal(len(t))
    assert 1 <= len(full_detections(values.tolist(), monkeypatch)) <= 2 * THRESHOLDS.online_tries
