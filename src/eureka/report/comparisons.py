"""Each fix against the baseline of its condition: verdicts in words, all figures as CSV, and the share of runs still waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from eureka.formats import rate
from eureka.report.groups import Fix, Groups
from eureka.spreadsheet import write_csv
from eureka.study.arms import Arm
from eureka.study.comparison import Comparison, judged_runs, run_times
from eureka.study.survival import survival_curve


@dataclass(frozen=True)
class Verdict:
    fix: Fix
    lr: str
    """its best learning rate; empty if there was one only"""
    text: str


@dataclass(frozen=True)
class Verdicts:
    """The verdicts on all fixes that are compared with one baseline."""

    condition: str
    """what distinguishes it; empty when there is no other"""
    baseline: Fix
    lr: str
    verdicts: list[Verdict]


@dataclass(frozen=True)
class WaitingCurve:
    """Kaplan and Meier's estimate for one fix at its best learning rate, from (0, 1) to the end of the longest budget."""

    fix: int
    lr: str
    runs: int
    left: int
    steps: list[float]
    share: list[float]
    low: list[float]
    high: list[float]


@dataclass(frozen=True)
class WaitingPicture:
    """The curves of one condition."""

    name: str
    curves: list[WaitingCurve]


@dataclass(frozen=True)
class WaitingKey:
    """A fix in the legend, with its curve if there is one picture only."""

    fix: Fix
    curve: WaitingCurve | None


@dataclass(frozen=True)
class WaitingFigure:
    pictures: list[WaitingPicture]
    keys: list[WaitingKey]
    several_rates: bool


def verdicts(groups: Groups, comparisons: Sequence[Comparison]) -> list[Verdicts]:
    """The comparisons in words, in the order of conditions, baselines and fixes."""
    found = []
    for _, those in groupby(comparisons, key=lambda one: (one.condition.key, one.baseline.key)):
        lines = list(those)
        first, told = lines[0], [_verdict(groups, one) for one in lines]
        lr = rate(first.baseline_best_lr) if any(map(_several_rates, lines)) else ""
        found.append(Verdicts(first.condition.label, groups.fix(first.baseline.key), lr, told))
    return found


def _verdict(groups: Groups, one: Comparison) -> Verdict:
    return Verdict(groups.fix(one.arm.key), rate(one.best_lr) if _several_rates(one) else "", one.verdict)


def _several_rates(one: Comparison) -> bool:
    return one.rates > 1 or one.baseline_rates > 1


def comparisons_csv(groups: Groups, comparisons: Sequence[Comparison]) -> str:
    """A line for each comparison with all its figures; an end of an interval that is not known leaves its place empty."""
    lines = [_line(groups, one) for one in comparisons]
    return write_csv(list(lines[0]), lines)


def _line(groups: Groups, one: Comparison) -> dict[str, Any]:
    names = {"fix": groups.fix(one.arm.key).name, "baseline": groups.fix(one.baseline.key).name}
    line: dict[str, Any] = {"setting": one.condition.label} if len(groups.grouping.conditions) > 1 else {}
    for key, value in (one.to_json() | names).items():
        if key == "setting":  # the page has a name for it
            continue
        if isinstance(value, dict):
            line |= {key: value["value"], f"{key}_low": value["low"], f"{key}_high": value["high"]}
        else:
            line[key] = value
    return line


def waiting_figure(groups: Groups) -> WaitingFigure | None:
    """A picture for each condition, in it a curve for each fix.

    None unless some curve is of two runs or more: what happened to one run is not a share.
    """
    conditions = groups.grouping.conditions
    pictures = [
        WaitingPicture(condition.label, [_curve(groups, arm) for arm in condition.arms if arm.ended]) for condition in conditions
    ]
    curves = [curve for picture in pictures for curve in picture.curves]
    if not any(curve.runs > 1 for curve in curves):
        return None
    drawn = [picture for picture in pictures if picture.curves]
    first = {curve.fix: curve for curve in reversed(curves)}
    keys = [WaitingKey(groups.fixes[fix], first[fix] if len(drawn) == 1 else None) for fix in sorted(first)]
    return WaitingFigure(drawn, keys, several_rates=len({cell.lr for cell in groups.cells}) > 1)


def _curve(groups: Groups, arm: Arm) -> WaitingCurve:
    lr, runs = judged_runs(arm)
    times = run_times(runs)
    curve = survival_curve(times)
    end = float(max(run.config.steps for run in runs))
    ends = [end] if max(curve.steps, default=0.0) < end else []  # all runs left before: the curve goes on at 0
    return WaitingCurve(
        fix=groups.fix(arm.key).index,
        lr=rate(lr),
        runs=len(times),
        left=int(times.observed.sum()),
        steps=[0.0, *curve.steps.tolist(), *ends],
        share=_carried_on(curve.waiting.tolist(), len(ends)),
        low=_carried_on(curve.low.tolist(), len(ends)),
        high=_carried_on(curve.high.tolist(), len(ends)),
    )


def _carried_on(values: Sequence[float], more: int) -> list[float]:
    """From 1 on, with the last value again `more` times."""
    whole = [1.0, *values]
    return whole + whole[-1:] * more
