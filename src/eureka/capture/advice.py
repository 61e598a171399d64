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
    from eureka.doctor.finding import Diagnosis

SETTING = re.compile(r"group\['(?P<setting>lr|weight_decay)'\] (?P<sign>\*?=) (?:min\([^,]*, )?(?P<value>[\d.e+-]+)")
"""How findings change a setting of the optimiser."""


def with_lines(found: Diagnosis, captured: Captured, script: Script, *, seconds: float, alone: bool) -> Diagnosis:
    """Return the diagnosis with the first finding's code as a change of the script (`change_of_script`)."""
    first, *others = found.findings
    change = change_of_script(first.code, captured, script, seconds=seconds, alone=alone)
    return replace(found, findings=(replace(first, code=change), *others)) if change else found


def change_of_script(code: str, captured: Captured, script: Script, *, seconds: float, alone: bool) -> str:
    """Return a change of the optimiser's settings in the words of the script; nothing if the code changes none.

    A change is named only if the script with it, run to its first step, has the new value in its optimiser; otherwise the line at
    which the optimiser was made is named.

    Args:
        code: as findings and remedies have it
        captured: the run that it is about
        script: what was run
        seconds: for running edited scripts
        alone: whether the script runs in one process; a process of a group cannot be run by itself
    """
    optimizer = captured.setup.trained_by
    wanted = _wanted(code, optimizer)
    if wanted is None:
        return ""
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
        return f"{edit}    # run to its first step, the edited script trains with {setting}={value:g}"
    return f"{_place(line)}{setting}={now:g} → {setting}={value:g}"


def _place(line: Line | None) -> str:
    return "" if line is None else f"the optimiser is made at {line}: "


def _wanted(code: str, optimizer: Optimizer | None) -> tuple[str, float, float] | None:
    """The setting that code changes, its value in the script, and the value that it should have."""
    change = SETTING.search(code)
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
