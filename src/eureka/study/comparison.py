"""Each fix against the baseline, fairly, and in words that say no more than the runs do.

**Fairly**: every fix is judged at its own best learning rate, chosen on one half of the seeds and judged on the other, and the
other way round, so that luck in choosing does not flatter. **And as a whole**: the share of learning rates at which at least half
of the runs leave the plateau.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from eureka.runs import Record, RunFolder
from eureka.study.settings import is_neutral, setting_keys
from eureka.study.significance import holm, log_rank
from eureka.study.statistics import Ended, differing_keys, ended_runs, flatten
from eureka.study.survival import Estimate, Times, median_time, restricted_mean, speed_up, times

LEVEL = 0.05


@dataclass(frozen=True)
class Arm:
    """The runs of one fix (with its settings): by learning rate, each in the order of the seeds."""

    label: str
    rates: dict[float, list[Ended]]

    def working_rates(self) -> int:
        """At how many learning rates at least half of the runs had their moment."""
        return sum(2 * sum(run.result["eureka_step"] is not None for run in runs) >= len(runs) for runs in self.rates.values())

    def judged(self) -> tuple[float, list[Ended]]:
        """The best learning rate by all runs; and the runs by which the fix is judged, none of which chose its own rate.

        With several rates, every other seed chooses a rate at which the seeds between them are judged, and the other way round.
        """
        [only, *more] = self.rates.items()
        if not more:
            return only
        best = _best(self.rates)
        if not all(len(runs) >= 2 for runs in self.rates.values()):
            return best, self.rates[best]
        halves = [{rate: runs[half::2] for rate, runs in self.rates.items()} for half in (0, 1)]
        judged = [run for mine, theirs in (halves, halves[::-1]) for run in mine[_best(theirs)]]
        return best, sorted(judged, key=lambda run: run.seed)


@dataclass(frozen=True)
class Comparison:
    """A fix against the baseline."""

    fix: str
    baseline: str
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
    setting: dict[str, Any] = field(default_factory=dict)
    """what distinguishes the setting in which both were run, when a study has several"""

    def as_json(self) -> Record:
        return asdict(self)


def compare_fixes(folders: Iterable[RunFolder], baseline: str = "softmax") -> list[Comparison]:
    """Every other arm of a study against the baseline of its own setting; empty where there is no baseline or nothing to compare.

    p-values are corrected for the number of all that are told.
    """
    runs = ended_runs(folders)
    keys = setting_keys([flatten(run.config) for run in runs])
    settings: dict[str, tuple[dict[str, Any], list[Ended]]] = {}
    for run in runs:
        setting = {key: flatten(run.config).get(key) for key in keys}
        settings.setdefault(repr(setting), (setting, []))[1].append(run)
    found = [replace(one, setting=setting) for setting, own in settings.values() for one in compare_runs(own, baseline)]
    return corrected(found)


def compare_runs(runs: Sequence[Ended], baseline: str = "softmax") -> list[Comparison]:
    """The same for runs of one setting that are read already."""
    groups = arms(runs)
    base = _baseline(groups, baseline)
    others = [arm for arm in groups if arm is not base]
    return [] if base is None else corrected([_compare(base, arm) for arm in others])


def corrected(found: Sequence[Comparison]) -> list[Comparison]:
    """With p-values corrected, and verdicts made, for as many comparisons as these are."""
    p_values = holm([one.p_value for one in found])
    exact = [replace(one, p_corrected=p) for one, p in zip(found, p_values, strict=True)]
    return [replace(one, verdict=verdict(one, len(found))) for one in exact]


def arms(runs: Sequence[Ended]) -> list[Arm]:
    """Runs that differ in nothing but seed and learning rate belong together."""
    differing = differing_keys([run.config for run in runs])
    groups: dict[str, dict[float, list[Ended]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted(runs, key=lambda run: run.seed):
        config = flatten(run.config)
        settings = [f"{key}={config[key]}" for key in differing if key in config and not is_neutral(key, config[key])]
        groups[", ".join([config["attention.name"], *settings])][config["training.lr"]].append(run)
    return [Arm(label, dict(sorted(rates.items()))) for label, rates in groups.items()]


def _baseline(groups: Sequence[Arm], name: str) -> Arm | None:
    """The baseline with the settings that most arms share."""
    shared = Counter(arm.label.partition(", ")[2] for arm in groups)
    candidates = [arm for arm in groups if arm.label.partition(", ")[0] == name]
    return max(candidates, key=lambda arm: shared[arm.label.partition(", ")[2]], default=None)


def run_times(runs: Sequence[Ended]) -> Times:
    """When each run had its moment; one without is censored at the end of its budget, also if it diverged before."""
    return times([run.result["eureka_step"] for run in runs], [run.config["training"]["steps"] for run in runs])


def horizon(*groups: Sequence[Ended]) -> float:
    """The longest time for which all runs were watched."""
    return float(min(run.config["training"]["steps"] for runs in groups for run in runs))


def _best(rates: dict[float, list[Ended]]) -> float:
    """The rate with the shortest mean wait; of equal ones the smaller."""
    return min(rates, key=lambda rate: (_mean_wait(rates[rate]), rate))


def _mean_wait(runs: Sequence[Ended]) -> float:
    value = restricted_mean(run_times(runs), horizon(runs)).value
    assert value is not None
    return value


def _compare(base: Arm, arm: Arm) -> Comparison:
    base_lr, base_runs = base.judged()
    lr, runs = arm.judged()
    limit = horizon(base_runs, runs)
    mine, theirs = run_times(runs), run_times(base_runs)
    return Comparison(
        fix=arm.label,
        baseline=base.label,
        best_lr=lr,
        baseline_best_lr=base_lr,
        runs=len(runs),
        baseline_runs=len(base_runs),
        median_step=median_time(mine),
        mean_wait=restricted_mean(mine, limit),
        speed_up=speed_up(theirs, mine, limit),
        p_value=log_rank(theirs, mine),
        p_corrected=1.0,
        working_rates=arm.working_rates(),
        baseline_working_rates=base.working_rates(),
        rates=len(arm.rates),
        baseline_rates=len(base.rates),
        verdict="",
    )


def verdict(one: Comparison, fixes: int = 1) -> str:
    """The comparison in words."""
    if smallest_p(one.baseline_runs, one.runs) * fixes > LEVEL:
        return f"not enough runs to tell ({one.runs} against {one.baseline_runs}); {_ratio(one)} so far{_rates(one)}"
    n = f"n = {one.runs}" if one.runs == one.baseline_runs else f"n = {one.runs} and {one.baseline_runs}"
    figures = f"{_interval(one.speed_up)}, p = {one.p_corrected:.2g}, {n}"
    if one.p_corrected > LEVEL:
        return f"no difference seen: {_ratio(one)}{figures}{_rates(one)}"
    return f"{_ratio(one)}{figures}{_rates(one)}"


def smallest_p(a: int, b: int) -> float:
    """The least p-value that this many runs can give at all: one dealing, and its mirror image if there is one."""
    return (2 if a == b else 1) / math.comb(a + b, a)


def _ratio(one: Comparison) -> str:
    value = one.speed_up.value
    assert value is not None
    if abs(math.log(value)) < math.log(1.05):
        return "neither sooner nor later"
    return f"{value:.1f}× sooner" if value > 1 else f"{1 / value:.1f}× later"


def _interval(ratio: Estimate) -> str:
    if ratio.value is None or ratio.low is None or ratio.high is None:
        return ""
    ends = (ratio.low, ratio.high) if ratio.value >= 1 else (1 / ratio.high, 1 / ratio.low)
    return f" [{ends[0]:.1f}, {ends[1]:.1f}]"


def _rates(one: Comparison) -> str:
    if one.rates == 1:
        return ""
    theirs = f"{one.baseline_working_rates} of {one.baseline_rates}"
    return f"; works at {one.working_rates} of {one.rates} learning rates against {theirs}"
