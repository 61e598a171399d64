"""Each arm against the baseline of its condition, and a verdict that claims no more than the runs show.

Every arm is judged at its own best learning rate, chosen on one half of the seeds and judged on the other, and the other way
round, so that a lucky choice does not flatter the ratio. The p-value compares the arms at the rates that are best by all their
runs, where luck flatters both alike; it flatters an arm with more good rates than the other: of five equally good rates against a
single one it errs in 10 % of studies, of fifteen in 17 %. (Runs whose rates were chosen by each other's halves are not
exchangeable: a permutation test of them errs in 10 to 20 %, even of arms that are alike.) The test in `sequential` holds for
both, and needs more runs. Beside it stands the number of learning rates at which at least half of the runs leave the plateau.

A rate with less than half as many seeds as another is no candidate for the best. While runs of an arm are unfinished nothing is
decided: those that leap end first, so that those that have ended flatter it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from eureka.formats import plural
from eureka.runs import Run
from eureka.study.arms import BASELINE, Arm, Condition, Grouping
from eureka.study.survival import Estimate, Times, log_rank, log_rank_sides, median_time, restricted_mean, speed_up, times

LEVEL = 0.05
"""The chance of a false verdict among all comparisons of a study, of arms that have as many good rates."""
Standing = Literal["too few", "open", "unclear", "alike", "sooner", "later"]
"""What a comparison has come to: too few runs to decide it, not decided yet, contradicted by most of its runs, or decided."""
BEGINS: dict[Standing, str] = {
    "too few": "not enough runs to tell",
    "open": "not decided yet",
    "unclear": "not clear, most runs say the opposite",
    "alike": "no difference seen",
}
"""How a verdict begins that claims no difference."""
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
    standing: Standing
    verdict: str

    @property
    def against_main(self) -> bool:
        """Whether the baseline is that of the condition, and not another start of it."""
        return self.baseline is baseline_of([arm for arm in self.condition.arms if arm.ended], self.baseline.key.fix)

    @property
    def unfinished(self) -> int:
        """How many runs of either arm have begun and not ended."""
        return sum(run.unfinished for arm in (self.arm, self.baseline) for cell in arm.cells.values() for run in cell.runs)

    @property
    def least_p(self) -> float:
        """The least p-value that the runs at the best rates can give at all."""
        return smallest_p(len(self.baseline.ended[self.baseline_best_lr]), len(self.arm.ended[self.best_lr]))

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
    p_values = corrected([one.p_value for one in found], [one.least_p for one in found])
    return [_judged(one, p) for one, p in zip(found, p_values, strict=True)]


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
        standing="open",
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
    most = max(len(runs) for runs in arm.ended.values())
    rates = {rate: runs for rate, runs in arm.ended.items() if 2 * len(runs) >= most}
    best = best_of(rates)
    seeds = sorted({run.config.seed for runs in rates.values() for run in runs})
    halves = [
        {rate: [run for run in runs if run.config.seed in seeds[half::2]] for rate, runs in rates.items()} for half in (0, 1)
    ]
    if len(rates) == 1 or not all(runs for half in halves for runs in half.values()):
        return best, rates[best]
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


def corrected(p_values: Sequence[float], least: Sequence[float]) -> list[float | None]:
    """Holm's correction among the comparisons that could be decided at all (Tarone); None for the others, which take no share.

    least   the least p-value that each can give. With K the smallest number of which at most K are at or below `LEVEL` / K, these
            are the comparisons that count

    >>> corrected([0.02, 0.4], least=[0.008, 0.2])
    [0.02, None]
    """
    bound = next(k for k in range(1, len(least) + 2) if sum(p <= LEVEL / k for p in least) <= k)
    testable = [p <= LEVEL / bound for p in least]
    found = iter(holm([p for p, counts in zip(p_values, testable, strict=True) if counts]))
    return [next(found) if counts else None for counts in testable]


def _judged(one: Comparison, p: float | None) -> Comparison:
    """The comparison with what it has come to, and in words."""
    found = replace(one, p_corrected=1.0 if p is None else p)
    if going := found.unfinished:
        return replace(found, standing="open", verdict=f"{BEGINS['open']}, {plural(going, 'run')} unfinished: {so_far(found)}")
    if p is None:
        told = f"{BEGINS['too few']} ({found.runs} against {found.baseline_runs}); {so_far(found)}"
        return replace(found, standing="too few", verdict=told)
    if p > LEVEL:
        return replace(found, standing="alike", verdict=f"{BEGINS['alike']}: {in_figures(found)}")
    if found.contradicted:
        return replace(found, standing="unclear", verdict=f"{BEGINS['unclear']}: {in_figures(found, decided=True)}")
    return replace(found, standing=direction(found), verdict=in_figures(found, decided=True))


def direction(one: Comparison) -> Standing:
    """Which way a difference goes that is decided."""
    assert one.speed_up.value is not None
    return "sooner" if one.speed_up.value > 1 else "later"


def so_far(one: Comparison) -> str:
    """The ratio alone, where nothing has been decided."""
    return f"{ratio(one)} so far{_rates(one)}"


def in_figures(one: Comparison, *, decided: bool = False) -> str:
    """The ratio with its interval, p-value and number of runs; one that is decided is told though it is near 1."""
    n = f"n = {one.runs}" if one.runs == one.baseline_runs else f"n = {one.runs} and {one.baseline_runs}"
    return f"{ratio(one, decided=decided)}{_interval(one.speed_up)}, p = {one.p_corrected:.2g}, {n}{_rates(one)}"


def smallest_p(a: int, b: int) -> float:
    """The least p-value that this many runs can give at all: one dealing, and its mirror image if there is one."""
    return (2 if a == b else 1) / math.comb(a + b, a)


def ratio(one: Comparison, *, decided: bool = False) -> str:
    """How many times sooner or later, in words."""
    value = one.speed_up.value
    assert value is not None
    near = abs(math.log(value)) < math.log(1.05)
    if near and not decided:
        return "neither sooner nor later"
    digits = 2 if near else 1
    return f"{value:.{digits}f}× sooner" if value > 1 else f"{1 / value:.{digits}f}× later"


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
