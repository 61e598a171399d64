"""Survival statistics against slow, obvious ones, and against simulated studies with known truth."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from eureka.study import dealings, survival
from eureka.study.survival import (
    Times,
    log_rank,
    log_rank_scores,
    median_time,
    restricted_mean,
    restricted_means,
    speed_up,
    survival_curve,
    times,
)


def slow_survival(given: Times, at: float) -> float:
    """The product, one moment after another."""
    waiting = 1.0
    for moment in sorted(set(given.steps[given.observed].tolist())):
        if moment <= at:
            risk = sum(step >= moment for step in given.steps)
            happened = sum(step == moment and seen for step, seen in zip(given.steps, given.observed, strict=True))
            waiting *= 1 - float(happened) / risk
    return waiting


def slow_restricted_mean(given: Times, horizon: float) -> float:
    cuts: list[float] = sorted({0.0, horizon, *(step for step in given.steps.tolist() if step < horizon)})
    return sum(slow_survival(given, left) * (right - left) for left, right in itertools.pairwise(cuts))


CASES = [
    times([500, 600, 700], [1200] * 3),
    times([500, None, 700, None], [1200] * 4),
    times([500, 500, None, 900, 900, None], [1200, 1200, 500, 1200, 1200, 950]),
    times([None, None], [1200, 1200]),
    times([5], [1200]),
    times([1200, None], [1200, 1200]),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.steps))
def test_the_curve_is_the_product_of_kaplan_and_meier(case: Times) -> None:
    curve = survival_curve(case)
    for step, waiting in zip(curve.steps, curve.waiting, strict=True):
        assert waiting == pytest.approx(slow_survival(case, step))
    assert np.all((curve.low <= curve.waiting + 1e-12) & (curve.waiting <= curve.high + 1e-12))


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.steps))
@pytest.mark.parametrize("horizon", [400.0, 700.0, 1200.0])
def test_the_restricted_mean_is_the_area_under_the_curve(case: Times, horizon: float) -> None:
    mean, _ = restricted_means(case.steps, case.observed, horizon)
    assert float(mean) == pytest.approx(slow_restricted_mean(case, horizon))


def test_without_censoring_mean_and_variance_are_the_plain_ones() -> None:
    steps = np.array([300.0, 500.0, 650.0, 900.0])
    mean, variance = restricted_means(steps, np.ones(4, dtype=bool), 5000.0)
    assert float(mean) == pytest.approx(steps.mean())
    assert float(variance) == pytest.approx(steps.var(ddof=1) / 4)


@pytest.mark.parametrize(("runs", "known"), [(1, False), (3, False), (5, False), (6, True)])
def test_a_few_runs_leave_the_end_of_the_medians_interval_open(runs: int, known: bool) -> None:
    found = median_time(times([500] * runs, [1200] * runs))
    assert found.value == 500
    assert (found.high is not None) == known


def test_runs_that_all_agree_have_a_mean_without_an_interval() -> None:
    found = restricted_mean(times([None] * 4, [1200] * 4), 1200)
    assert (found.value, found.low, found.high) == (1200, None, None)


def test_the_median_is_unknown_when_half_of_the_runs_never_leave() -> None:
    assert median_time(times([500, None, None], [1200] * 3)).value is None
    assert median_time(times([500, 600, None], [1200] * 3)).value == 600


def test_the_log_rank_statistic_is_scipys() -> None:
    """Permuting and the normal approximation agree where there are many runs."""
    rng = np.random.default_rng(0)
    for shift in (1.0, 1.3, 1.6):
        a = Times(rng.exponential(500, 60).round(), rng.random(60) < 0.8)
        b = Times((rng.exponential(500, 60) * shift).round(), rng.random(60) < 0.8)
        expected = stats.logrank(
            stats.CensoredData.right_censored(a.steps, ~a.observed), stats.CensoredData.right_censored(b.steps, ~b.observed)
        ).pvalue
        assert log_rank(a, b) == pytest.approx(expected, abs=0.02)


def test_with_few_runs_the_p_value_is_that_of_scipys_permutation_test() -> None:
    rng = np.random.default_rng(6)
    for _ in range(40):
        n, m = rng.integers(2, 6, 2)
        a, b = (Times(100.0 * rng.integers(1, 8, size), rng.random(size) < 0.7) for size in (n, m))
        scores = log_rank_scores(np.concatenate([a.steps, b.steps]), np.concatenate([a.observed, b.observed]))
        expected = stats.permutation_test(
            (scores[:n], scores[n:]),
            lambda mine, _, axis: np.abs(mine.sum(axis=axis)).round(9),
            vectorized=True,
            n_resamples=20_000,
            alternative="greater",
        ).pvalue
        assert log_rank(a, b) == pytest.approx(float(expected))


def test_three_runs_against_three_can_never_be_significant() -> None:
    assert log_rank(times([1, 2, 3], [10] * 3), times([None] * 3, [10] * 3)) == pytest.approx(0.1)


def test_five_runs_against_five_can() -> None:
    assert log_rank(times([1, 2, 3, 4, 5], [10] * 5), times([None] * 5, [10] * 5)) == pytest.approx(2 / 252)


def simulate(rng: np.random.Generator, n: int, scale: float, horizon: float) -> Times:
    steps = scale * rng.weibull(2.0, n)
    return Times(np.minimum(steps, horizon), steps <= horizon)


def test_the_false_positive_rate_holds_with_few_runs() -> None:
    rng = np.random.default_rng(1)
    for n in (4, 6):
        p_values = [log_rank(simulate(rng, n, 900, 1200), simulate(rng, n, 900, 1200)) for _ in range(1000)]
        rate = np.mean(np.array(p_values) <= 0.05)
        assert rate <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)


def true_ratio(a: float, b: float, horizon: float) -> float:
    rng = np.random.default_rng(99)
    means = [np.minimum(scale * rng.weibull(2.0, 400_000), horizon).mean() for scale in (a, b)]
    return float(means[0] / means[1])


@pytest.mark.parametrize("n", [5, 6, 10])
def test_the_interval_of_the_speed_up_covers_at_its_nominal_rate(n: int) -> None:
    rng, truth = np.random.default_rng(2), true_ratio(1000, 500, 1200)
    studies = 400
    covered = 0
    for _ in range(studies):
        found = speed_up(simulate(rng, n, 1000, 1200), simulate(rng, n, 500, 1200), 1200)
        covered += found.low is not None and found.high is not None and found.low <= truth <= found.high
    assert 0.91 <= covered / studies <= 0.99


@pytest.mark.parametrize(("share", "n", "least"), [(0.8, 5, 0.6), (0.8, 10, 0.8), (0.5, 10, 0.9)])
def test_the_interval_covers_less_often_where_few_runs_never_leap_and_is_never_absurd(share: float, n: int, least: float) -> None:
    """Waits near 400 steps, or none: the harder, the rarer a run without a leap is among those that were run."""
    rng, horizon = np.random.default_rng(5), 3000.0
    truth = (share * 400 + (1 - share) * horizon) / 600
    covered, studies = 0, 400
    for _ in range(studies):
        leap, mine, theirs = rng.random(n) < share, rng.normal(400, 20, n), rng.normal(600, 20, n)
        found = speed_up(Times(np.where(leap, mine, horizon), leap), Times(theirs, np.ones(n, dtype=bool)), horizon)
        assert found.low is not None
        assert found.high is not None
        assert 0.01 < found.low <= found.high < 100
        covered += found.low <= truth <= found.high
    assert least <= covered / studies <= 1.0


def test_one_run_that_never_leaps_does_not_blow_up_the_interval() -> None:
    late = times([8000, 8000, 8000, 8000, 8025, None], [100_000] * 6)
    found = speed_up(times([10_000, 10_000, 10_025, 10_000, 10_000, 10_000], [100_000] * 6), late, 100_000)
    assert found.low is not None
    assert found.high is not None
    assert 0.01 < found.low < found.high < 100


def test_the_interval_is_welchs_of_the_logarithm() -> None:
    """Without censoring, by the delta method and scipy's degrees of freedom."""
    a, b = np.array([900.0, 1100.0, 1000.0, 1150.0]), np.array([300.0, 420.0, 380.0, 350.0, 400.0])
    found = speed_up(Times(a, np.ones(4, dtype=bool)), Times(b, np.ones(5, dtype=bool)), 5000.0)
    as_logs = stats.ttest_ind(
        a / a.mean(), b / b.mean(), equal_var=False
    ).confidence_interval()  # means of 1, variances as of logs
    half = (as_logs.high - as_logs.low) / 2
    assert found.low == pytest.approx(a.mean() / b.mean() * np.exp(-half))
    assert found.high == pytest.approx(a.mean() / b.mean() * np.exp(half))


def test_a_speed_up_of_runs_that_all_agree_has_no_interval() -> None:
    found = speed_up(times([None] * 5, [1200] * 5), times([400] * 5, [1200] * 5), 1200)
    assert found.value == pytest.approx(3.0)
    assert (found.low, found.high) == (None, None)


def test_the_interval_of_the_restricted_mean_covers() -> None:
    rng, truth = np.random.default_rng(3), true_ratio(1000, 1.0, 1200)
    truth *= float(np.minimum(np.random.default_rng(99).weibull(2.0, 400_000), 1200).mean())
    found = [restricted_mean(simulate(rng, 8, 1000, 1200), 1200) for _ in range(600)]
    covered = np.mean([e.low is not None and e.high is not None and e.low <= truth <= e.high for e in found])
    assert 0.91 <= covered <= 0.985


def test_the_normal_law_for_many_runs_agrees_with_dealing_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for shift in (0, 30, 80):
        a = Times(rng.integers(100, 900, 250).astype(float), rng.random(250) < 0.7)
        b = Times(rng.integers(100 + shift, 900 + shift, 250).astype(float), rng.random(250) < 0.7)
        dealt = log_rank(a, b), survival.log_rank_sides(a, b)
        with monkeypatch.context() as patch:
            patch.setattr(dealings, "NORMAL_ABOVE", 100)
            normal = log_rank(a, b), survival.log_rank_sides(a, b)
        assert normal[0] == pytest.approx(dealt[0], abs=0.01)
        assert normal[1] == pytest.approx(dealt[1], abs=0.01)
