"""What the detector finds, and what it is silent about."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.curves import detector
from eureka.curves.detector import detect
from eureka.curves.drops import Drop, measure_drop
from eureka.curves.grid import Array
from eureka.curves.thresholds import THRESHOLDS
from eureka.errors import RequestError

T = np.arange(3000.0)


def drop(size: float = 1.5, at: float = 1800.0, time: float = 20.0, noise: float = 0.03, seed: int = 0) -> Array:
    """2 on a plateau, then a sigmoid down, with noise."""
    rng = np.random.default_rng(seed)
    return 2.0 - size / (1.0 + np.exp(-(T - at) / time)) + noise * rng.standard_normal(len(T))


def test_a_drop_after_a_plateau_is_found_with_its_levels_and_its_plateau() -> None:
    [moment] = detect(drop())
    assert moment.kind == "eureka"
    assert moment.confidence > 0.9
    assert moment.steepest == pytest.approx(1800.0, abs=3.0)
    assert 1700.0 < moment.onset < moment.steepest < moment.end < 1900.0
    assert moment.before == pytest.approx(2.0, abs=0.1)
    assert moment.after == pytest.approx(0.5, abs=0.1)
    assert moment.plateau.start < 100.0
    assert moment.plateau.level == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(2.0 + 5.0 * (1.0 + T / 5.0) ** -0.5, id="power law"),
        pytest.param(np.exp(-T / 100.0), id="exponential"),
        pytest.param(2.0 - T / 3000.0, id="straight line"),
        pytest.param(np.full(3000, 2.0), id="constant"),
        pytest.param(np.zeros(3000), id="zero"),
        pytest.param(np.exp(T / 500.0), id="divergence"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.05])
def test_it_is_silent_on_curves_that_merely_go_their_way(values: Array, noise: float) -> None:
    rng = np.random.default_rng(3)
    assert detect(values + noise * rng.standard_normal(len(values))) == []


def test_the_first_fast_fall_is_no_moment() -> None:
    assert detect(1.0 + 9.0 * np.exp(-T / 10.0) + 0.01 * np.random.default_rng(0).standard_normal(len(T))) == []


def test_the_return_from_a_spike_is_a_recovery_or_nothing() -> None:
    late = np.clip(T - 1500.0, 0.0, None)
    spike = np.where(T >= 1500.0, 3.0 * np.exp(-late / 15.0), 0.0)
    values = 2.0 + 3.0 * (1.0 + T / 10.0) ** -0.5 + spike + 0.02 * np.random.default_rng(1).standard_normal(len(T))
    assert all(moment.kind == "recovery" for moment in detect(values, min_confidence=0.1))


def test_a_long_stay_on_a_higher_level_ends_in_a_recovery() -> None:
    values = 1.0 + ((T > 1000) & (T < 2000)) + 0.02 * np.random.default_rng(2).standard_normal(len(T))
    [moment] = detect(values)
    assert moment.kind == "recovery"
    assert moment.steepest == pytest.approx(2000.0, abs=2.0)


def test_grokking_is_a_moment_although_the_loss_rose_first() -> None:
    values = (4.7 + 15.0 * (1.0 - np.exp(-T / 400.0))) / (1.0 + np.exp((T - 2000.0) / 25.0)) + 0.01
    [moment] = detect(values)
    assert moment.kind == "eureka"


def test_a_known_cut_of_the_learning_rate_explains_a_drop_at_it_and_no_other() -> None:
    values = drop(size=0.8, at=900.0) + drop(size=0.7, at=2000.0, noise=0.0, time=5.0)
    lr = np.where(T < 1990.0, 0.1, 0.01)
    assert [moment.kind for moment in detect(values, lr=lr)] == ["eureka", "lr_step"]
    assert [moment.kind for moment in detect(values)] == ["eureka", "eureka"]


def test_a_smooth_schedule_explains_no_drop() -> None:
    cosine = 0.5 * (1.0 + np.cos(np.pi * T / 3000.0))
    for at in (900.0, 1800.0, 2600.0):
        [moment] = detect(drop(at=at), lr=cosine)
        assert moment.kind == "eureka"


def test_every_step_of_a_staircase_is_found() -> None:
    values = sum(drop(size=0.5, at=at, noise=0.01, seed=int(at)) for at in (700.0, 1400.0, 2100.0))
    assert [round(moment.steepest, -1) for moment in detect(values)] == [700.0, 1400.0, 2100.0]


def test_an_early_moment_of_a_very_long_run_is_found() -> None:
    n = 400_000
    t = np.arange(n)
    values = 2.0 - 1.5 / (1.0 + np.exp(-(t - 2000.0) / 25.0)) + 0.03 * np.random.default_rng(0).standard_normal(n)
    [moment] = detect(values)
    assert moment.steepest == pytest.approx(2000.0, abs=10.0)


def test_values_and_steps_of_different_lengths_are_refused() -> None:
    with pytest.raises(RequestError, match="3 values but 2 steps"):
        detect([1.0, 2.0, 3.0], [0, 1])


@pytest.mark.parametrize("values", [[], [1.0], [float("nan")] * 50, [1.0] * 5, list(range(11))])
def test_too_little_to_see_anything_gives_nothing(values: list[float]) -> None:
    assert detect(values) == []


def late_drop(points: int) -> Array:
    t = np.arange(points) / points
    return 2.0 - 1.5 / (1.0 + np.exp(-(t - 0.6) / 0.008)) + 0.05 * np.random.default_rng(0).standard_normal(points)


def test_a_million_points_cost_few_more_drops_than_four_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def counted(y: Array, *arguments: Any, **options: Any) -> Drop | None:
        measured.append(len(y))
        return measure_drop(y, *arguments, **options)

    monkeypatch.setattr(detector, "measure_drop", counted)
    [moment] = detect(late_drop(4_000))
    few = len(measured)
    measured.clear()
    [moment] = detect(late_drop(1_000_000))
    assert moment.steepest == pytest.approx(600_000, rel=0.01)
    assert max(measured) <= THRESHOLDS.grid_points
    assert 0 < len(measured) < 5 * few  # five grids instead of one


CURVES = os.environ.get("EUREKA_CURVES", "")


@pytest.mark.skipif(not CURVES, reason="EUREKA_CURVES does not name a folder with labels.csv and published curves")
def test_published_curves_are_judged_as_people_judge_them() -> None:
    folder = Path(CURVES)
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        labels = list(csv.DictReader(file))
    assert labels
    for label in labels:
        steps, values = np.genfromtxt(folder / label["file"], delimiter=",", skip_header=1).T
        rate = folder / f"{label['file'][:3]}_lr.txt"
        lr = np.genfromtxt(rate, delimiter=",", skip_header=1)[:, 1] if rate.exists() else None
        found = [moment for moment in detect(values, steps, lr=lr) if moment.kind == "eureka"]
        verdict = label["abrupt_after_plateau"]
        if verdict == "yes":
            wanted = float(label["steepest_step"])
            assert any(abs(moment.steepest - wanted) <= 0.1 * wanted for moment in found), label["file"]
        elif verdict.startswith("no"):
            assert not found, label["file"]
        else:
            assert all(moment.confidence < 0.7 for moment in found), label["file"]


def test_a_rise_of_a_rising_metric_is_a_moment_told_in_its_own_values() -> None:
    [moment] = detect(1.0 - drop(size=0.5) / 2.0, rising=True)
    [fallen] = detect(drop(size=0.5) / 2.0 - 1.0)
    assert moment.kind == "eureka"
    assert (moment.before, moment.after, moment.plateau.level) == (-fallen.before, -fallen.after, -fallen.plateau.level)
    assert moment.before < moment.after
    assert moment.drop == pytest.approx(0.25, abs=0.03)
    assert detect(drop(size=0.5), rising=True) == []


def epoch_stairs(epochs: int = 3, noise: float = 0.03, steps: int = 3000) -> tuple[Array, Array]:
    """A loss that sinks little within an epoch and falls as the next one begins; and the epoch at each step."""
    t = np.arange(float(steps))
    epoch = t / steps * epochs
    rng = np.random.default_rng(0)
    return 2.0 - 0.6 * np.floor(epoch) - 0.05 * epoch + noise * rng.standard_normal(steps), epoch


def test_falls_of_a_training_loss_as_epochs_begin_are_epoch_boundaries() -> None:
    values, epochs = epoch_stairs()
    assert [moment.kind for moment in detect(values, epochs=epochs)] == ["epoch_boundary"] * 2
    assert [moment.kind for moment in detect(drop(at=1500.0), epochs=epochs)] == ["eureka"]  # in the middle of an epoch


def test_a_log_of_one_point_an_epoch_does_not_tell_where_in_an_epoch_a_drop_is() -> None:
    values = drop()[::50]
    [moment] = detect(values, epochs=np.arange(len(values)))
    assert moment.kind == "eureka"


def test_a_drop_far_below_the_floor_is_a_leak() -> None:
    assert [moment.kind for moment in detect(drop(), floor=1.0)] == ["leak"]
    assert [moment.kind for moment in detect(drop(), floor=0.45)] == ["eureka"]
    assert [moment.kind for moment in detect(-drop(), rising=True, floor=-1.0)] == ["leak"]


def step_decay(points: int = 90, at: tuple[int, ...] = (30, 60), calm: float = 1.0, seed: int = 0) -> Array:
    """A loss by epoch whose rate is cut twice: it falls at once, settles over a few epochs, and sinks slowly."""
    t, rng = np.arange(float(points)), np.random.default_rng(seed)
    values, noise = 3.2 + 1.7 * np.exp(-t / 3.0), np.full(points, 0.02)
    for cut in at:
        late = np.clip(t - cut, 0.0, None)
        values -= np.where(t >= cut, 0.6 + 0.3 * (1.0 - np.exp(-late / 1.5)) + 0.001 * late, 0.0)
        noise *= np.where(t >= cut, calm, 1.0)
    return values + noise * rng.standard_normal(points)


@pytest.mark.parametrize(("calm", "seed"), [(1.0, 0), (1.0, 1), (0.3, 2), (0.3, 3)])
def test_what_looks_like_a_step_of_an_unknown_rate_is_less_sure_and_says_so(calm: float, seed: int) -> None:
    values = step_decay(calm=calm, seed=seed)
    found = detect(values)
    assert len(found) == 2
    assert all(moment.like_rate_step and moment.confidence < 0.7 for moment in found)
    constant = detect(values, lr=np.ones(len(values)))
    assert all(not moment.like_rate_step and moment.confidence > 0.8 for moment in constant)
    cut = detect(values, lr=0.1 ** np.searchsorted([30, 60], np.arange(len(values)), side="right").astype(float))
    assert [moment.kind for moment in cut] == ["lr_step", "lr_step"]


def test_what_speeds_up_before_it_falls_does_not_look_like_a_rate_step() -> None:
    for time in (4.0, 20.0, 60.0):
        [moment] = detect(drop(time=time))
        assert not moment.like_rate_step
        assert moment.confidence > 0.9


@pytest.mark.parametrize("epochs", [3, 4, 6])
def test_equally_spaced_falls_are_epoch_boundaries_although_no_epoch_is_known(epochs: int) -> None:
    values, _ = epoch_stairs(epochs)
    assert {moment.kind for moment in detect(values)} == {"epoch_boundary"}


def test_falls_at_other_distances_are_not() -> None:
    values = 3.0 - sum(0.6 * (at < T) for at in (700.0, 1300.0, 2300.0)) + 0.03 * np.random.default_rng(0).standard_normal(3000)
    assert {moment.kind for moment in detect(values)} == {"eureka"}


def test_a_forward_filled_log_shows_no_stairs() -> None:
    t = np.arange(300.0)
    sparse = 2.0 + 3.0 * (1.0 + t / 10.0) ** -0.5 + 0.02 * np.random.default_rng(0).standard_normal(300)
    assert detect(np.repeat(sparse, 10)) == []
    [filled] = detect(np.repeat(drop()[::20], 20))
    assert filled.steepest == pytest.approx(1800.0, abs=20.0)


@pytest.mark.parametrize("apart", [80.0, 120.0, 200.0])
def test_two_stairs_close_together_are_two_moments(apart: float) -> None:
    values = drop(size=0.6, time=5.0, noise=0.01) + drop(size=0.5, at=1800.0 + apart, time=5.0, noise=0.01, seed=1)
    assert [round(moment.steepest, -1) for moment in detect(values)] == [1800.0, 1800.0 + apart]


@pytest.mark.parametrize("flat", [4, 6, 10])
def test_a_plateau_of_a_few_points_in_a_coarse_log_is_enough(flat: int) -> None:
    rng = np.random.default_rng(flat)
    start, end = [9.0, 4.0, 3.1], [2.2, 1.2, 1.05] + [1.0] * 14
    values = np.array([*start, *[3.0] * flat, *end]) + 0.03 * rng.standard_normal(len(start) + flat + len(end))
    [moment] = detect(values)
    assert abs(moment.steepest - (len(start) + flat)) <= 1.0


@pytest.mark.parametrize("first", [10.0, 100.0, 1000.0])
def test_the_first_fall_does_not_make_a_later_drop_small(first: float) -> None:
    values = drop() + first * np.exp(-T / 3.0)
    [moment] = detect(values)
    assert moment.steepest == pytest.approx(1800.0, abs=3.0)
    assert moment.confidence > 0.9


@pytest.mark.parametrize("slope", [0.0, 0.3, 0.6])
def test_the_onset_is_where_the_fall_begins_and_not_where_the_plateau_slopes(slope: float) -> None:
    for seed in range(5):
        [moment] = detect(drop(seed=seed, noise=0.05) - slope * np.minimum(T / 1800.0, 1.0))
        assert 1741.0 - 60.0 < moment.onset < 1800.0  # a twentieth of the drop is done at 1,741, and it takes 118 steps


def test_a_fall_that_is_small_beside_the_noise_is_still_placed_at_its_epoch() -> None:
    rng, epochs = np.random.default_rng(3), np.arange(240) / 60.0
    levels = np.repeat([2.0, 1.55, 1.25, 1.05], 60) - 0.08 * (epochs % 1.0)
    for _ in range(10):
        found = detect(levels + 0.03 * rng.standard_normal(240), epochs=epochs)
        assert found
        assert {moment.kind for moment in found} == {"epoch_boundary"}


def test_a_flat_log_whose_interval_changes_shows_no_moment() -> None:
    steps = np.concatenate([np.arange(0.0, 100.0), np.arange(100.0, 50_000.0, 500.0)])
    rng = np.random.default_rng(4)
    assert not [moment for _ in range(20) for moment in detect(2.3 + 0.03 * rng.standard_normal(len(steps)), steps)]


@pytest.mark.parametrize("at", [500.0, 300.0, 700.0])
def test_one_fall_of_many_epochs_is_no_memorising_and_falls_at_several_are(at: float) -> None:
    steps, noise = np.arange(1000.0), 0.02 * np.random.default_rng(0).standard_normal(1000)
    one = 2.3 - 2.0 / (1.0 + np.exp(-(steps - at - 5.0) / 2.0)) + noise
    [moment] = detect(one, epochs=steps / 100.0)
    assert (moment.kind, round(moment.steepest)) == ("eureka", at + 5)
    smaller = sum(0.1 / (1.0 + np.exp(-(steps - begin - 5.0) / 2.0)) for begin in range(100, 1000, 100))
    assert {moment.kind for moment in detect(one - smaller, epochs=steps / 100.0)} == {"epoch_boundary"}


def test_a_fall_with_the_second_epoch_is_memorising_though_later_ones_drown_in_the_noise() -> None:
    rng, epochs = np.random.default_rng(5), np.arange(400) / 100.0
    levels = np.repeat([2.0, 1.2, 1.08, 1.02], 100)
    for _ in range(8):
        found = detect(levels + 0.08 * rng.standard_normal(400), epochs=epochs)
        assert {moment.kind for moment in found} == {"epoch_boundary"}
