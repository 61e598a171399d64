"""The fixes of a report at their own best learning rates, and each against the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eureka.report.groups import Groups
from eureka.study.comparison import Arm, Comparison, arms, compare_runs, corrected
from eureka.study.statistics import Ended


@dataclass(frozen=True)
class FixArm:
    """All ended runs of a fix in a setting."""

    fix: int
    setting: int
    arm: Arm


@dataclass(frozen=True)
class Against:
    """A fix against the baseline of its setting."""

    fix: int
    baseline: int
    setting: int
    found: Comparison


def fix_arms(groups: Groups) -> list[FixArm]:
    """The arms of each setting, in the order of the fixes."""
    found = [
        FixArm(_fix_of(groups, arm), setting, arm)
        for setting in range(len(groups.settings))
        for arm in arms(_ended(groups, setting))
    ]
    return sorted(found, key=lambda one: (one.setting, one.fix))


def comparisons(groups: Groups) -> list[Against]:
    """Every fix against the baseline of its own setting; p-values are corrected for the number of all that are told."""
    found: list[Against] = []
    for setting in range(len(groups.settings)):
        runs = _ended(groups, setting)
        fixes = {arm.label: _fix_of(groups, arm) for arm in arms(runs)}
        found += [Against(fixes[one.fix], fixes[one.baseline], setting, one) for one in compare_runs(runs)]
    return sorted(_corrected(found), key=lambda one: (one.setting, one.fix))


def _corrected(found: Sequence[Against]) -> list[Against]:
    """With one setting this changes nothing: `compare_runs` has corrected for the fixes within each."""
    return [replace(one, found=new) for one, new in zip(found, corrected([one.found for one in found]), strict=True)]


def _ended(groups: Groups, setting: int) -> list[Ended]:
    pairs = zip(groups.runs, groups.setting_of, strict=True)
    return [Ended(run.folder, run.parts, run.result) for run, its in pairs if its == setting and run.result is not None]


def _fix_of(groups: Groups, arm: Arm) -> int:
    """The fix of its first run: all runs of an arm have the same."""
    folder = next(iter(arm.rates.values()))[0].folder
    return next(fix for run, fix in zip(groups.runs, groups.fix_of, strict=True) if run.folder is folder)
