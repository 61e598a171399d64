"""Statistics of the time to the Eureka-moment. A run without one is *censored*: its moment is later than its last step.

A run that diverged will never have its moment; it counts as not having had it within the whole budget.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from eureka.study.dealings import Bools, Floats, sides, two_sided


@dataclass(frozen=True)
class Times:
    """When each run had its moment (`observed`), or until when it had not."""

    steps: Floats
    observed: Bools

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, chosen: ArrayLike) -> Times:
        return Times(self.steps[chosen], self.observed[chosen])  # type: ignore[index]


def times(steps: Sequence[int | None], until: Sequence[int]) -> Times:
    """From the Eureka-step of each run, None without one, and how long it was watched.

    >>> times([500, None], until=[1200, 1200])
    Times(steps=array([ 500., 1200.]), observed=array([ True, False]))
    """
    observed = np.array([step is not None for step in steps], dtype=bool)
    return Times(np.array([end if step is None else step for step, end in zip(steps, until, strict=True)], dtype=float), observed)


@dataclass(frozen=True)
class SurvivalCurve:
    """The share of runs still waiting just after each step, with a pointwise interval."""

    steps: Floats
    waiting: Floats
    low: Floats
    high: Floats


def survival_curve(given: Times, confidence: float = 0.95) -> SurvivalCurve:
    """Kaplan and Meier's estimate, S(t) = Π (1 - d_i / n_i), with the log-log Greenwood interval (scipy).

    Where all runs wait, or none does, that interval is undefined: there it is the exact one of Clopper and Pearson.
    """
    from scipy import stats

    function = stats.ecdf(_censored(given)).sf
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        interval: Any = function.confidence_interval(confidence, method="log-log")
    waiting = np.asarray(function.probabilities, dtype=float)
    exact = ((1 - confidence) / 2) ** (1 / len(given))
    low = np.where(np.isnan(interval.low.probabilities), np.where(waiting > 0, exact, 0.0), interval.low.probabilities)
    high = np.where(np.isnan(interval.high.probabilities), np.where(waiting > 0, 1.0, 1 - exact), interval.high.probabilities)
    return SurvivalCurve(np.asarray(function.quantiles, dtype=float), waiting, low, high)


def _censored(given: Times) -> Any:
    from scipy import stats

    return stats.CensoredData.right_censored(given.steps, ~given.observed)


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; None where it is beyond what the runs can say."""

    value: float | None
    low: float | None
    high: float | None


def median_time(given: Times, confidence: float = 0.95) -> Estimate:
    """The first step at which at most half of the runs are waiting; the interval reads the same off S's interval."""
    curve = survival_curve(given, confidence)
    return Estimate(
        _first_below(curve.steps, curve.waiting), _first_below(curve.steps, curve.low), _first_below(curve.steps, curve.high)
    )


def _first_below(steps: Floats, shares: Floats) -> float | None:
    reached = np.flatnonzero(shares <= 0.5)
    return float(steps[reached[0]]) if len(reached) else None


def restricted_means(steps: Floats, observed: Bools, horizon: float) -> tuple[Floats, Floats]:
    """The restricted mean waiting time ∫₀^τ S(t) dt of each row of runs, (…, n) → (…,), and its variance.

    Var = n/(n-1) · Σ_i A_i² / (r_i (r_i - 1)) over the moments i, where r_i runs wait until t_i and A_i = ∫_{t_i}^τ S.
    """
    seen = observed & (steps <= horizon)
    order = np.lexsort((~seen, np.minimum(steps, horizon)), axis=-1)  # a moment comes before an end of watching at the same step
    t = np.take_along_axis(np.minimum(steps, horizon), order, axis=-1)
    d = np.take_along_axis(seen, order, axis=-1).astype(float)
    n = t.shape[-1]
    risk = np.arange(n, 0, -1, dtype=float)
    after = np.cumprod(1 - d / risk, axis=-1)  # S just after each time
    gaps = np.diff(t, axis=-1, append=horizon)  # a step function beyond the last time: S is carried on to the horizon
    areas = after * gaps
    remaining = np.cumsum(areas[..., ::-1], axis=-1)[..., ::-1]  # A_i
    weights = np.divide(1.0, risk * (risk - 1), out=np.zeros(n), where=risk > 1)
    variance = (d * remaining**2 * weights).sum(-1) * (n / (n - 1) if n > 1 else np.nan)
    return t[..., 0] + areas.sum(-1), variance


def restricted_mean(given: Times, horizon: float, confidence: float = 0.95) -> Estimate:
    """The mean waiting time up to a horizon, with a t interval; without one where all runs agree."""
    from scipy import stats

    mean, variance = restricted_means(given.steps, given.observed, horizon)
    if not float(variance) > 0:
        return Estimate(float(mean), None, None)
    half = float(stats.t.ppf((1 + confidence) / 2, len(given) - 1)) * float(np.sqrt(variance))
    return Estimate(float(mean), max(0.0, float(mean) - half), min(horizon, float(mean) + half))


def speed_up(baseline: Times, fix: Times, horizon: float, *, confidence: float = 0.95) -> Estimate:
    """How many times sooner: the ratio of restricted means, baseline over fix, with Welch's t interval of its logarithm.

    log R ± t_ν · √(v_a + v_b), v being the variance of a mean by its square and ν Welch's and Satterthwaite's degrees of freedom.
    It covers about as often as a bootstrap-t, and a single run that never leaps cannot blow it up. Where such runs are rare, few
    runs do not show how rare, and any interval covers too seldom; `tests/study/test_survival.py` measures both.
    """
    from scipy import stats

    (mean_a, var_a), (mean_b, var_b) = (restricted_means(one.steps, one.observed, horizon) for one in (baseline, fix))
    value, parts = float(np.log(mean_a / mean_b)), np.array([var_a / mean_a**2, var_b / mean_b**2])
    if not parts.sum() > 0:  # all agree, or there is one run only
        return Estimate(float(np.exp(value)), None, None)
    degrees = parts.sum() ** 2 / (parts**2 / np.array([len(baseline) - 1, len(fix) - 1])).sum()
    half = float(stats.t.ppf((1 + confidence) / 2, degrees) * np.sqrt(parts.sum()))
    return Estimate(float(np.exp(value)), float(np.exp(value - half)), float(np.exp(value + half)))


def log_rank(a: Times, b: Times, *, seed: int = 0) -> float:
    """The two-sided p-value of the log-rank test by permutation: how often dealing the runs anew parts the groups as far.

    Z = Σ_t (d_a(t) - d(t) n_a(t) / n(t)). Under the null hypothesis every dealing is equally likely, so the p-value is exact
    for any number of runs, which the usual normal approximation is not.
    """
    return two_sided(_scores(a, b), len(a), seed=seed)


def log_rank_sides(a: Times, b: Times, *, seed: int = 0) -> tuple[float, float]:
    """The one-sided p-values of the same test: that `a` is sooner than `b`, and that it is later."""
    return sides(_scores(a, b), len(a), seed=seed)


def _scores(a: Times, b: Times) -> Floats:
    return log_rank_scores(np.concatenate([a.steps, b.steps]), np.concatenate([a.observed, b.observed]))


def log_rank_scores(steps: Floats, observed: Bools) -> Floats:
    """The part of each run in Z: 1 if it had its moment, less the hazard that all runs together had until then."""
    moments, happened = np.unique(steps[observed], return_counts=True)
    waiting = len(steps) - np.searchsorted(np.sort(steps), moments)
    hazard = np.concatenate([[0.0], np.cumsum(happened / waiting)])
    scores: Floats = observed - hazard[np.searchsorted(moments, steps, side="right")]
    return scores
