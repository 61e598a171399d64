"""Each arm against the baseline of its condition, and a verdict that claims no more than the runs show.

Every arm is judged at its own best learning rate, chosen on one half of the seeds and judged on the other, and the other way
round, so that a lucky choice does not flatter the ratio. The p-value compares the arms at the rates that are best by all their
runs, where luck flatters both alike; of an arm with five equally good rates and one with a single good rate, it flatters the
first, and errs in up to 10 % of such studies. (Runs whose rates were chosen by each other's halves are not exchangeable: a
permutation test of them errs in 10 to 20 %, even of arms that are alike.) The test in `sequential` holds for both, and needs more
runs. Beside it stands the number of learning rates at which at least half of the runs leave the plateau.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from eureka.runs import Run
from eureka.study.arms import BASELINE, Arm, Condition, Grouping
from eureka.study.survival import Estimate, Times, log_rank, log_rank_sides, median_time, restricted_mean, speed_up, times

LEVEL = 0.05
"""The chance of a false verdict among all comparisons of a study."""
TOO_FEW, UNDECIDED, NONE_SEEN = "not enough runs to tell", "not decided yet", "no difference seen"
UNCLEAR = "not clear"
"""How a verdict begins that claims no difference."""
Standing = Literal["open", "alike", "sooner", "later"]
BestOf = Callable[[Mapping[float, Sequence[Run]]], float]
"""Chooses a learning rate."""


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline of its condition."""

    condition: Condition
    arm: Arm
    baseline: Arm
    best_lr: float
    baseline_best_lr: float
    runs: int
    baseline_runs: int
    median_step: Estimate
    mean_wait: Estimate
    speed_up: Estimate
    p_value: float
    p_corrected: float
    working_rates: int
    baseline_working_rates: int
    rates: int
    baseline_rates: int
    verdict: str

    @property
    def standing(self) -> Standing:
        """What the verdict says, in a word."""
        if self.verdict.startswith((TOO_FEW, UNDECIDED, UNCLEAR)):
            return "open"
        if self.verdict.startswith(NONE_SEEN) or self.speed_up.value is None:
            return "alike"
        return "sooner" if self.speed_up.value > 1 else "later"

    @property
    def contradicted(self) -> bool:
        """Whether most runs at the best rates say the opposite of the ratio, which a run that never leaps can turn round."""
        mine, theirs = self.arm.ended[self.best_lr], self.baseline.ended[self.baseline_best_lr]
        sooner, later = log_rank_sides(run_times(mine), run_times(theirs))
        return self.speed_up.value is not None and (sooner < later) != (self.speed_up.value > 1)

    def to_json(self) -> dict[str, Any]:
        figures = {key: value for key, value in vars(self).items() if key not in ("condition", "arm", "baseline")}
        plain = {key: asdict(value) if isinstance(value, Estimate) else value for key, value in figures.items()}
        named = {"fix": self.arm.full_label, "baseline": self.baseline.full_label}
        return named | plain | {"setting": self.condition.settings}


def compare_arms(grouping: Grouping, baseline: str = BASELINE) -> list[Comparison]:
    """Every arm against the baseline of its condition; empty where there is no baseline or nothing to compare.

    A fix that shares its controls with another arm of the baseline, as when both start clear, is compared with that arm too. The
    p-values are corrected for the number of all comparisons.
    """
    found = [one for condition in grouping.conditions for one in _compare_within(condition, baseline)]
    p_values = holm([one.p_value for one in found])
    corrected = [replace(one, p_corrected=p) for one, p in zip(found, p_values, strict=True)]
    return [replace(one, verdict=verdict(one, len(found))) for one in corrected]


def _compare_within(condition: Condition, baseline: str) -> list[Comparison]:
    arms = [arm for arm in condition.arms if arm.ended]
    return [compare(condition, base, arm) for base, arm in pairs(arms, baseline)]


def pairs(arms: Sequence[Arm], baseline: str = BASELINE) -> list[tuple[Arm, Arm]]:
    """Which arms of a condition are compared, the baseline first; empty where there is no baseline."""
    base = baseline_of(arms, baseline)
    if base is None:
        return []
    others = [arm for arm in arms if arm.key.fix == baseline and arm is not base]
    alike = [(other, arm) for other in others for arm in arms if arm is not other and arm.key.controls == other.key.controls]
    return [(base, arm) for arm in arms if arm is not base] + alike


def baseline_of(arms: Sequence[Arm], fix: str) -> Arm | None:
    """The arm of this fix as it is, if there is one; or else with the controls that most arms share, and then with the fewest."""
    shared = Counter(arm.key.controls for arm in arms)
    mine = (arm for arm in arms if arm.key.fix == fix)
    return max(mine, key=lambda arm: (not arm.key.controls, shared[arm.key.controls], -len(arm.key.controls)), default=None)


def compare(
    condition: Condition, base: Arm, arm: Arm, *, judged: tuple[Arm, Arm] | None = None, confidence: float = 0.95
) -> Comparison:
    """An arm against its baseline, both of which have runs that ended; not yet corrected, and without a verdict.

    judged   the two arms with only those rates and seeds by which they are judged; all unless given
    """
    judged_base, judged_arm = judged or (base, arm)
    base_lr, base_runs = judged_runs(judged_base)
    lr, runs = judged_runs(judged_arm)
    limit = horizon(*base_runs, *runs)
    mine, theirs = run_times(runs), run_times(base_runs)
    return Comparison(
        condition=condition,
        arm=arm,
        baseline=base,
        best_lr=lr,
        baseline_best_lr=base_lr,
        runs=len(runs),
        baseline_runs=len(base_runs),
        median_step=median_time(mine),
        mean_wait=restricted_mean(mine, limit),
        speed_up=speed_up(theirs, mine, limit, confidence=confidence),
        p_value=log_rank(run_times(judged_base.ended[base_lr]), run_times(judged_arm.ended[lr])),
        p_corrected=1.0,
        working_rates=_working_rates(arm),
        baseline_working_rates=_working_rates(base),
        rates=len(arm.ended),
        baseline_rates=len(base.ended),
        verdict="",
    )


def soonest_rate(rates: Mapping[float, Sequence[Run]]) -> float:
    """The rate with the shortest mean wait; of equal ones the smaller."""
    return min(rates, key=lambda rate: (_mean_wait(rates[rate]), rate))


def judged_runs(arm: Arm, best_of: BestOf = soonest_rate) -> tuple[float, list[Run]]:
    """The best learning rate by all runs; and the runs by which the arm is judged, none of which chose its own rate.

    With several rates, every other seed chooses a rate at which the seeds between them are judged, and the other way round.

    best_of   chooses the best rate, from the runs at each
    """
    rates = arm.ended
    best = best_of(rates)
    if len(rates) == 1 or not all(len(runs) >= 2 for runs in rates.values()):
        return best, rates[best]
    halves = [{rate: runs[half::2] for rate, runs in rates.items()} for half in (0, 1)]
    judged = [run for mine, theirs in (halves, halves[::-1]) for run in mine[best_of(theirs)]]
    return best, sorted(judged, key=lambda run: run.config.seed)


def _mean_wait(runs: Sequence[Run]) -> float:
    value = restricted_mean(run_times(runs), horizon(*runs)).value
    assert value is not None
    return value


def run_times(runs: Sequence[Run]) -> Times:
    """When each run had its moment; one without is censored at the end of its budget, also if it diverged before."""
    return times([run.eureka_step for run in runs], [run.config.steps for run in runs])


def horizon(*runs: Run) -> float:
    """The longest time for which all runs were watched."""
    return float(min(run.config.steps for run in runs))


def _working_rates(arm: Arm) -> int:
    """At how many learning rates at least half of the runs had their moment."""
    return sum(2 * cell.leaps >= len(cell.ended) for cell in arm.cells.values() if cell.ended)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the chance of even one false positive among all of them stays at the level.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def verdict(one: Comparison, comparisons: int = 1) -> str:
    """The comparison in words."""
    if not enough_runs(one, comparisons):
        return f"{TOO_FEW} ({one.runs} against {one.baseline_runs}); {so_far(one)}"
    if one.p_corrected > LEVEL:
        return f"{NONE_SEEN}: {in_figures(one)}"
    return f"{UNCLEAR}, most runs say the opposite: {in_figures(one)}" if one.contradicted else in_figures(one)


def enough_runs(one: Comparison, comparisons: int) -> bool:
    """Whether the clearest outcome of this many runs would not be taken for chance."""
    return smallest_p(one.baseline_runs, one.runs) * comparisons <= LEVEL


def so_far(one: Comparison) -> str:
    """The ratio alone, where nothing has been decided."""
    return f"{ratio(one)} so far{_rates(one)}"


def in_figures(one: Comparison) -> str:
    """The ratio with its interval, p-value and number of runs."""
    n = f"n = {one.runs}" if one.runs == one.baseline_runs else f"n = {one.runs} and {one.baseline_runs}"
    return f"{ratio(one)}{_interval(one.speed_up)}, p = {one.p_corrected:.2g}, {n}{_rates(one)}"


def smallest_p(a: int, b: int) -> float:
    """The least p-value that this many runs can give at all: one dealing, and its mirror image if there is one."""
    return (2 if a == b else 1) / math.comb(a + b, a)


def ratio(one: Comparison) -> str:
    """How many times sooner or later, in words."""
    value = one.speed_up.value
    assert value is not None
    if abs(math.log(value)) < math.log(1.05):
        return "neither sooner nor later"
    return f"{value:.1f}× sooner" if value > 1 else f"{1 / value:.1f}× later"


def _interval(found: Estimate) -> str:
    if found.value is None or found.low is None or found.high is None:
        return ""
    ends = (found.low, found.high) if found.value >= 1 else (1 / found.high, 1 / found.low)
    return f" [{ends[0]:.1f}, {ends[1]:.1f}]"


def _rates(one: Comparison) -> str:
    if one.rates == 1:
        return ""
    theirs = f"{one.baseline_working_rates} of {one.baseline_rates}"
    return f"; works at {one.working_rates} of {one.rates} learning rates against {theirs}"
