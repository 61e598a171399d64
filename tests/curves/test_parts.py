"""The parts of the detector, each against a slow and obvious twin."""

from __future__ import annotations

import ast
import re
import statistics
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import maximum_filter1d

from eureka.curves import thresholds
from eureka.curves.candidates import falls_at, scales, sliding_max
from eureka.curves.confidence import lasting_step, upper_median
from eureka.curves.grid import Array, changes, clean, even_grid, grids, later_extent, repeats, smooth, white_noise
from eureka.curves.plateaus import find_plateaus, flat_stretches, rest_at_end, trend
from eureka.curves.plot import terminal_plot
from eureka.curves.steepest import DropFit, fit_drop, skewed_sigmoid
from eureka.curves.thresholds import THRESHOLDS


def test_every_threshold_says_what_it_means_and_where_it_comes_from_and_is_used() -> None:
    folder = Path(thresholds.__file__).parent
    [body] = [node.body for node in ast.parse(Path(thresholds.__file__).read_text()).body if isinstance(node, ast.ClassDef)]
    texts = {
        field.target.id: text.value.value
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip
    used = "".join(path.read_text() for path in folder.rglob("*.py"))
    assert list(texts) == [field.name for field in fields(THRESHOLDS)]
    for name, text in texts.items():
        assert re.search("Definition|Trial|Cost|Numerics", str(text)), name
        assert f"THRESHOLDS.{name}" in used, name


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=40), st.integers(1, 50))
def test_sliding_max_is_the_max_of_each_window(values: list[float], width: int) -> None:
    array = np.array(values)
    assert sliding_max(array, width).tolist() == [array[i : i + width].max() for i in range(len(array))]


@pytest.mark.parametrize("width", [1, 2, 7, 64, 199])
def test_sliding_max_is_the_maximum_filter_of_scipy(width: int) -> None:
    values = np.random.default_rng(0).standard_normal(200)
    theirs = maximum_filter1d(values, width, mode="constant", cval=-np.inf, origin=-(width // 2))
    assert np.array_equal(sliding_max(values, width), theirs)


@pytest.mark.parametrize(("gap", "window"), scales(100))
def test_falls_are_differences_of_window_means(gap: int, window: int) -> None:
    y = np.random.default_rng(gap).standard_normal(100) + 1e6
    scale = falls_at(y, gap, window)
    for i in range(len(scale.fall)):
        before, after = y[i : i + window].mean(), y[i + window + gap : i + 2 * window + gap].mean()
        assert scale.fall[i] == pytest.approx(before - after, abs=1e-8)
        lowest = min(y[j : j + window].mean() for j in range(i + 1))
        assert scale.fresh[i] == pytest.approx(lowest - after, abs=1e-8)
    assert len(scale.fall) == 100 - gap - 2 * window + 1


@pytest.mark.parametrize(("first", "counted"), [(3.0, 3.0), (5.0, 5.0), (300.0, 5.0)])
def test_a_huge_first_fall_counts_for_a_few_times_the_range_after_it(first: float, counted: float) -> None:
    y = np.concatenate([np.linspace(first, 1.0, 20), np.linspace(1.0, 0.0, 980)])
    assert later_extent(y) == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_smooth_is_a_centred_mean(width: int) -> None:
    y = np.random.default_rng(0).standard_normal(30)
    for i, value in enumerate(smooth(y, width)):
        window = y[max(i - width // 2, 0) : i + (width - 1) // 2 + 1]
        assert value == pytest.approx(window.mean())


def test_white_noise_ignores_trends_and_jumps() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(2000.0)
    y = 5.0 - 0.01 * t - 3.0 * (t > 1000) + 0.2 * rng.standard_normal(2000)
    assert white_noise(y).mean() == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("size", [1, 2, 3, 100, 101])
def test_the_upper_median_is_that_of_the_standard_library(size: int) -> None:
    values = np.random.default_rng(0).standard_normal(size)
    assert upper_median(values) == statistics.median_high(values.tolist())


def test_the_lasting_step_is_that_of_a_least_squares_fit() -> None:
    rng = np.random.default_rng(1)
    y = 3.0 - 0.002 * np.arange(300.0) - 1.0 * (np.arange(300) >= 150) + 0.05 * rng.standard_normal(300)
    step, error = lasting_step(y, 0, 150.0, 150.0, 10.0)
    at = np.r_[50:150, 150:250]
    design = np.column_stack([np.ones(200), at, at >= 150])
    slow = -np.linalg.lstsq(design, y[at], rcond=None)[0][2]
    slope = np.linalg.lstsq(design, y[at], rcond=None)[0][1]
    assert step == pytest.approx(slow - slope)  # between the last point of one side and the first of the other
    assert 0.005 < error < 0.05
    assert abs(step - 1.0) < 4 * error


@pytest.mark.parametrize("at", [60.0, 100.3, 140.7])
def test_steepest_is_exact_without_noise(at: float) -> None:
    t = np.arange(200.0)
    even = fit_drop(1.0 / (1.0 + np.exp((t - at) / 4.0)), at - 8.8, at + 8.8)
    assert even.centre == pytest.approx(at, abs=0.15)
    assert even.skew == pytest.approx(0.5, abs=0.05)
    kink = fit_drop(np.exp(-np.maximum(t - at, 0.0) / 8.0), at + 0.8, at + 18.4)
    assert kink.centre == pytest.approx(at, abs=0.6)
    assert kink.skew < THRESHOLDS.kink
    assert kink.evidence > THRESHOLDS.fit_evidence


@pytest.mark.parametrize("skew", [0.1, 0.5, 0.8])
def test_a_fit_tells_where_each_share_of_its_drop_is_done(skew: float) -> None:
    fit = DropFit(centre=50.0, width=7.0, skew=skew, evidence=0.0)
    for share in (0.05, 0.3, 0.7, 0.95):
        left = skewed_sigmoid(np.array(fit.at(share)), np.array(50.0), np.array(7.0), np.array(skew))
        assert 1.0 - float(left) == pytest.approx(share)


def test_an_even_log_is_its_own_grid() -> None:
    x = 7.0 + 3.0 * np.arange(500.0)
    y = np.cos(np.arange(500.0) / 40.0)
    grid = even_grid(x, y)
    assert grid.values == pytest.approx(y)
    assert [grid.step(i) for i in (0, 499)] == pytest.approx([7.0, x[-1]])
    assert grid.index(grid.step(12.5)) == pytest.approx(12.5)


def test_the_points_that_are_searched_grow_with_the_logarithm_of_the_log() -> None:
    searched = [sum(len(grid.values) for grid in grids(*clean(np.zeros(points)))) for points in (4_000, 64_000, 1_024_000)]
    assert searched[-1] <= 6 * THRESHOLDS.grid_points
    assert searched[1] - searched[0] == searched[2] - searched[1] == 2 * THRESHOLDS.grid_points  # two grids for a factor of 16


def test_long_logs_get_finer_grids_of_their_beginning() -> None:
    found = grids(*clean(np.zeros(200_000)))
    assert [round(grid.width * len(grid.values), -3) for grid in found] == [200_000, 50_000, 12_000, 3_000]
    assert [grid.last for grid in found] == [True, False, False, False]


def test_a_grid_averages_over_gaps_and_jitter() -> None:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 1000, 20_000))
    grid = even_grid(x, x / 1000.0, 100)
    assert grid.values == pytest.approx(np.array([grid.step(i) for i in range(100)]) / 1000.0, abs=2e-3)


def test_plateaus_are_found_whether_or_not_something_ended_them() -> None:
    t = np.arange(3000.0)
    noise = 0.02 * np.random.default_rng(0).standard_normal(3000)
    first, last = find_plateaus(1.0 + 1.0 / (1.0 + np.exp((t - 1500.0) / 20.0)) + noise)
    assert first.level == pytest.approx(2.0, abs=0.02)
    assert last.level == pytest.approx(1.0, abs=0.02)
    assert first.end < 1500 < last.start < 1700
    assert last.end > 2950
    assert find_plateaus(3.0 - t / 1000.0) == []
    [only] = find_plateaus(2.0 + noise)
    assert only.end - only.start > 2700


def test_a_trend_is_that_of_a_least_squares_line() -> None:
    rng = np.random.default_rng(0)
    fallen, errors = [], []
    for _ in range(200):
        y = 5.0 - 0.01 * np.arange(100.0) + 0.3 * rng.standard_normal(100)
        fell, error = trend(y)
        assert fell == pytest.approx(-100 * np.polyfit(np.arange(100.0), y, 1)[0])
        fallen.append(fell)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(fallen), rel=0.2)


def test_the_error_of_a_trend_grows_with_the_likeness_of_neighbours() -> None:
    rng = np.random.default_rng(0)
    smoothed = np.array([trend(np.convolve(rng.standard_normal(403), np.ones(4) / 2.0, "valid")) for _ in range(200)])
    assert np.mean(smoothed[:, 1]) == pytest.approx(np.std(smoothed[:, 0]), rel=0.3)


@pytest.mark.parametrize("power", [0.1, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_power_law_never_rests(power: float, noise: float) -> None:
    rng = np.random.default_rng(1)
    y = (1.0 + np.arange(1000.0)) ** -power
    y = y / y[250] + noise * rng.standard_normal(1000)
    assert [size for size in range(16, 1001, 4) if rest_at_end(y[:size])] == []


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e5])
def test_what_has_fallen_and_stays_rests_in_any_unit(unit: float) -> None:
    t = np.arange(400.0)
    y = 1.0 + np.exp(-t / 20.0) + 0.01 * np.random.default_rng(0).standard_normal(400)
    rest = rest_at_end(unit * y)
    assert rest is not None
    assert rest.level == pytest.approx(unit, rel=0.01)
    assert not rest.is_left_by(unit * y)
    assert rest.is_left_by(unit * np.append(y, np.full(40, 0.5)))


def test_a_plateau_begins_after_the_last_one_was_left() -> None:
    y = np.repeat([2.0, 1.0], 100) + 0.01 * np.random.default_rng(0).standard_normal(200)
    assert rest_at_end(y) is not None
    assert rest_at_end(y, since=160) is None


@pytest.mark.parametrize("times", [2, 5, 20])
def test_a_forward_filled_log_is_judged_at_its_changes(times: int) -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_normal(60)
    x = np.arange(60.0 * times)
    steps, values = changes(x, np.repeat(y, times))
    assert repeats(np.repeat(y, times)) == times
    assert values.tolist() == y.tolist()
    assert steps.tolist() == x[::times].tolist()


@pytest.mark.parametrize(
    "y",
    [
        pytest.param(np.round(2.0 + 0.01 * np.random.default_rng(0).standard_normal(2000), 2), id="rounded"),
        pytest.param(np.repeat([2.0, 1.0], 500), id="one jump"),
        pytest.param(np.full(500, 2.0), id="constant"),
        pytest.param(np.random.default_rng(0).standard_normal(500), id="all different"),
    ],
)
def test_other_logs_are_kept_whole(y: Array) -> None:
    assert repeats(y) == 1
    assert changes(np.arange(float(len(y))), y)[1] is y


def test_flat_stretches_do_not_overlap() -> None:
    y = np.repeat([4.0, 3.0, 2.0], 100) + 0.01 * np.random.default_rng(0).standard_normal(300)
    found = flat_stretches(y)
    assert len(found) == 3
    assert all(b < c for (_, b), (c, _) in pairwise(found))


@pytest.mark.parametrize("columns", [10, 64])
def test_a_terminal_plot_has_the_size_asked_for(columns: int) -> None:
    lines = terminal_plot(np.sin(np.arange(1000.0) / 100.0), np.arange(1000.0), columns=columns, rows=5)
    assert len(lines) == 6
    assert len({len(line) for line in lines[:5]}) == 1


def test_plateaus_of_a_curve_that_dips_and_comes_back_do_not_overlap() -> None:
    t = np.arange(3000.0)
    dip, drop = 0.8 * np.exp(-(((t - 1300) / 60) ** 2)), 1.0 / (1 + np.exp(-(t - 2600) / 20))
    found = find_plateaus(2.0 - dip - drop + np.random.default_rng(0).normal(0, 0.02, 3000), t)
    assert len(found) == 2
    assert all(first.end <= second.start for first, second in pairwise(found))
    assert [round(one.level, 1) for one in found] == [2.0, 2.0]
