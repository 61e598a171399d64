"""The loss that each arm reaches in equal steps, against the baseline of its condition: who leaves first need not end lowest.

Only runs that were not to stop early are compared: of those that end soon after their leap, the last loss says when they leapt.
An arm is judged at its own best learning rate, here that of the lowest loss, as in `comparison`. A run that diverged is worst.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from eureka.formats import fixed, plural
from eureka.runs import Run
from eureka.study.arms import BASELINE, Arm, Condition, Grouping
from eureka.study.comparison import BEGINS, LEVEL, corrected, judged_runs, pairs
from eureka.study.ranks import rank_test, shift
from eureka.study.survival import Estimate

DIGITS = 3
"""Decimals of a loss."""


@dataclass(frozen=True)
class LossComparison:
    """The loss of an arm after all its steps, against that of the baseline of its condition."""

    condition: Condition
    arm: Arm
    baseline: Arm
    steps: int
    best_lr: float
    baseline_best_lr: float
    runs: int
    baseline_runs: int
    loss: float | None
    """the median; None if most runs diverged"""
    baseline_loss: float | None
    lower: Estimate
    """by how much the arm's loss is lower; negative where it is higher"""
    p_value: float
    p_corrected: float
    verdict: str

    @property
    def size(self) -> Estimate:
        """How large the difference is, whichever way it goes."""
        value, low, high = self.lower.value, self.lower.low, self.lower.high
        if value is None or value >= 0:
            return self.lower
        return Estimate(-value, None if high is None else -high, None if low is None else -low)

    @property
    def difference(self) -> str:
        """In words."""
        if self.loss is None or self.baseline_loss is None or self.lower.value is None:
            return self._diverged()
        return f"{fixed(self.size.value, DIGITS)} {'lower' if self.lower.value >= 0 else 'higher'}"

    def _diverged(self) -> str:
        """Where most runs of an arm have no loss: who has one."""
        runs, others = (arm.ended[lr] for arm, lr in ((self.arm, self.best_lr), (self.baseline, self.baseline_best_lr)))
        mine, theirs = (sum(math.isinf(loss) for loss in _losses(each)) for each in (runs, others))
        less = mine / len(runs) - theirs / len(others)
        way = "lower, since" if less < 0 else "higher, since" if less > 0 else "no losses to compare, since"
        return f"{way} {mine} of {plural(len(runs), 'run')} diverged against {theirs} of {len(others)}"

    @property
    def least_p(self) -> float:
        """The least p-value that the runs at the best rates can give at all: all of one arm below all of the other, or above."""
        mine, theirs = len(self.arm.ended[self.best_lr]), len(self.baseline.ended[self.baseline_best_lr])
        return 2 / math.comb(mine + theirs, mine)

    def to_json(self) -> dict[str, Any]:
        figures = {key: value for key, value in vars(self).items() if key not in ("condition", "arm", "baseline", "lower")}
        named = {"fix": self.arm.full_label, "baseline": self.baseline.full_label}
        return named | figures | {"lower": asdict(self.lower), "setting": self.condition.settings}


def compare_losses(grouping: Grouping, baseline: str = BASELINE) -> list[LossComparison]:
    """Every arm against the baseline of its condition; empty where runs were to stop early, or there is nothing to compare.

    The p-values are corrected for the number of all comparisons.
    """
    found = [one for condition in grouping.conditions if _to_the_end(condition) for one in _within(condition, baseline)]
    p_values = corrected([one.p_value for one in found], [one.least_p for one in found])
    return [
        replace(one, p_corrected=1.0 if p is None else p, verdict=_verdict(one, p))
        for one, p in zip(found, p_values, strict=True)
    ]


def after_steps(losses: Sequence[LossComparison]) -> str:
    """After how many steps losses are compared: ``1,200 steps``, or ``all steps`` where settings differ in them."""
    steps = {one.steps for one in losses}
    return f"{steps.pop():,} steps" if len(steps) == 1 else "all steps"


def _to_the_end(condition: Condition) -> bool:
    return condition.key.get("training.early_stop") is False


def _within(condition: Condition, baseline: str) -> list[LossComparison]:
    arms = [arm for arm in condition.arms if arm.ended]
    return [_compare(condition, base, arm) for base, arm in pairs(arms, baseline)]


def _compare(condition: Condition, base: Arm, arm: Arm) -> LossComparison:
    (base_lr, base_runs), (lr, runs) = (judged_runs(one, _lowest_rate) for one in (base, arm))
    mine, theirs = _losses(runs), _losses(base_runs)
    return LossComparison(
        condition=condition,
        arm=arm,
        baseline=base,
        steps=runs[0].config.steps,
        best_lr=lr,
        baseline_best_lr=base_lr,
        runs=len(runs),
        baseline_runs=len(base_runs),
        loss=median_loss(runs),
        baseline_loss=median_loss(base_runs),
        lower=shift(mine, theirs),
        p_value=rank_test(_losses(base.ended[base_lr]), _losses(arm.ended[lr])),
        p_corrected=1.0,
        verdict="",
    )


def _lowest_rate(rates: Mapping[float, Sequence[Run]]) -> float:
    """The rate with the lowest median loss; of equal ones the smaller."""
    return min(rates, key=lambda rate: (statistics.median(_losses(rates[rate])), rate))


def median_loss(runs: Sequence[Run]) -> float | None:
    """The median loss at the end of runs that have ended; None if most diverged."""
    value = statistics.median(_losses(runs))
    return value if math.isfinite(value) else None


def _losses(runs: Sequence[Run]) -> list[float]:
    """The loss at the end of each run; infinite if it diverged."""
    ends = [run.outcome for run in runs if run.outcome is not None]
    return [math.inf if end.status == "diverged" or end.final_loss is None else end.final_loss for end in ends]


def _verdict(one: LossComparison, p: float | None) -> str:
    """The comparison in words; without a p-value there are too few runs."""
    if p is None:
        return f"{BEGINS['too few']} ({one.runs} against {one.baseline_runs}); {one.difference} so far{_medians(one)}"
    n = f"n = {one.runs}" if one.runs == one.baseline_runs else f"n = {one.runs} and {one.baseline_runs}"
    told = f"{one.difference}{_interval(one)}, p = {p:.2g}, {n}{_medians(one)}"
    return told if p <= LEVEL else f"{BEGINS['alike']}: {told}"


def _interval(found: LossComparison) -> str:
    one = found.size
    if found.loss is None or found.baseline_loss is None or one.value is None or one.low is None or one.high is None:
        return ""
    return f" [{fixed(one.low, DIGITS)}, {fixed(one.high, DIGITS)}]"


def _medians(one: LossComparison) -> str:
    return f" ({fixed(one.loss, DIGITS)} against {fixed(one.baseline_loss, DIGITS)})"
