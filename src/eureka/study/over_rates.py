"""Each arm over all its learning rates at once: for whoever does not know the best rate, and will not look for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eureka.runs import Run
from eureka.study.arms import BASELINE, Arm, Condition, Grouping
from eureka.study.comparison import baseline_of, horizon, judged_runs, run_times
from eureka.study.survival import Estimate, restricted_mean, speed_up


@dataclass(frozen=True)
class OverRates:
    """The runs of an arm at every rate, beside the baseline at its own best one."""

    condition: Condition
    arm: Arm
    leaps: int
    runs: int
    share_interval: tuple[float, float]
    """exact, 95 %, of the share of runs that leapt"""
    mean_wait: Estimate
    """restricted to the budget of the shortest run"""
    sooner: Estimate | None
    """the mean wait of the baseline at its own best rate (chosen on other seeds than it is judged on), by that of this arm over
    all rates; None for the baseline itself"""

    def to_json(self) -> dict[str, Any]:
        sooner = None if self.sooner is None else asdict(self.sooner)
        return {
            "fix": self.arm.full_label,
            "leaps": self.leaps,
            "runs": self.runs,
            "share_interval": list(self.share_interval),
            "mean_wait": asdict(self.mean_wait),
            "sooner_than_the_baseline_at_its_best_rate": sooner,
            "setting": self.condition.settings,
        }


def over_rates(grouping: Grouping, baseline: str = BASELINE) -> list[OverRates]:
    """Every arm that was run at several rates; empty where no arm was."""
    return [one for condition in grouping.conditions for one in _within(condition, baseline)]


def _within(condition: Condition, baseline: str) -> list[OverRates]:
    arms = [arm for arm in condition.arms if arm.ended]
    base = baseline_of(arms, baseline)
    best = None if base is None else judged_runs(base)[1]
    return [_over(condition, arm, None if arm is base else best) for arm in arms if len(arm.ended) > 1]


def _over(condition: Condition, arm: Arm, best: Sequence[Run] | None) -> OverRates:
    from scipy.stats import binomtest

    runs = [run for those in arm.ended.values() for run in those]
    leaps = sum(run.eureka_step is not None for run in runs)
    limit = horizon(*runs, *(best or []))
    interval = binomtest(leaps, len(runs)).proportion_ci(0.95, method="exact")
    return OverRates(
        condition=condition,
        arm=arm,
        leaps=leaps,
        runs=len(runs),
        share_interval=(float(interval.low), float(interval.high)),
        mean_wait=restricted_mean(run_times(runs), limit),
        sooner=None if best is None else speed_up(run_times(best), run_times(runs), limit),
    )
