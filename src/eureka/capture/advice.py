"""What a diagnosis advises, in the words of the script: the line, argument or config key that sets a rate or a decay."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from torch.optim import Optimizer

from eureka.capture.edits import change_that_works
from eureka.capture.lines import Line
from eureka.forks.rates import first_rate

if TYPE_CHECKING:
    from eureka.capture.script import Script
    from eureka.capture.session import Captured
    from eureka.doctor.finding import Diagnosis, Finding

SETTING = re.compile(r"group\['(?P<setting>lr|weight_decay)'\] (?P<sign>\*?=) (?:min\([^,]*, )?(?P<value>[\d.e+-]+)")
"""How findings change a setting of the optimiser."""


def with_lines(found: Diagnosis, captured: Captured, script: Script, *, seconds: float, alone: bool = True) -> Diagnosis:
    """Return the diagnosis with the first finding's code as a change of the script.

    A change is named only if the script with it, run to its first step, has the new value in its optimiser; otherwise the line at
    which the optimiser was made is named.

    Args:
        found: as `eureka.diagnose` returns it
        captured: the run that it is about
        script: what was run
        seconds: for running edited scripts
        alone: whether the script runs in one process; a process of a group cannot be run by itself
    """
    first, *others = found.findings
    optimizer = captured.setup.trained_by
    wanted = _wanted(first, optimizer)
    if wanted is None or optimizer is None:
        return found
    setting, now, value = wanted
    line = captured.optimizer_line
    edit = None
    if alone:
        edit = change_that_works(
            script.file,
            script.module,
            script.arguments,
            setting,
            now,
            value,
            near_line=None if line is None else line.number,
            near_file=None if line is None else line.path,
            seconds=seconds,
        )
    if edit is not None:
        code = f"{edit}    # run to its first step, the edited script trains with {setting}={value:g}"
    else:
        code = f"{_place(line)}{setting}={now:g} → {setting}={value:g}"
    return replace(found, findings=(replace(first, code=code), *others))


def _place(line: Line | None) -> str:
    return "" if line is None else f"the optimiser is made at {line}: "


def _wanted(finding: Finding, optimizer: Optimizer | None) -> tuple[str, float, float] | None:
    """The setting that a finding changes, its value in the script, and the value that it should have."""
    change = SETTING.search(finding.code)
    if change is None or optimizer is None:
        return None
    setting, value = change["setting"], float(change["value"])
    groups = optimizer.param_groups
    if setting == "lr":
        current = max(float(group["lr"]) for group in groups)
        now = max(first_rate(group) for group in groups) or current  # what the script wrote; a schedule lowers it
        if change["sign"] == "*=":
            return setting, now, now * value
        return (setting, now, now * value / current) if current > 0 else (setting, now, value)
    return setting, max(float(group.get("weight_decay", 0.0)) for group in groups), value
