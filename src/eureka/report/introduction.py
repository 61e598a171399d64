"""What a reader needs who has never seen the project: the task with samples, what each fix does, how to use it, how to make it
again. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eureka.attention.registry import FIXES
from eureka.errors import UnknownNameError
from eureka.models.start import STARTS
from eureka.report.groups import Fix, Groups
from eureka.report.headline import best_comparison
from eureka.report.report_run import ReportRun
from eureka.runs import TaskSamples
from eureka.study.arms import BASELINE, ArmKey
from eureka.study.comparison import Comparison
from eureka.tasks.registry import TASKS, task_summary

MOST_TASKS = 3
START = "model.start"
CLEAR_START = "our own method, eureka.clear_start"
SCHEDULED = ("heat_treatment",)
"""Fixes that must know how long training is."""


@dataclass(frozen=True)
class TaskCard:
    """A task in a line, with samples of it."""

    name: str
    summary: str
    source: str
    samples: TaskSamples


@dataclass(frozen=True)
class FixLine:
    """What a fix does."""

    fix: Fix
    summary: str
    source: str


@dataclass(frozen=True)
class Use:
    """How to use a fix in a model of one's own."""

    fix: Fix
    decided: bool
    """whether it is decided that it helps here"""
    lines: list[str]
    note: str


def task_cards(runs: Sequence[ReportRun]) -> list[TaskCard]:
    """Each task once, and each own text, with the samples of the first run that has some; of very many the first ones."""
    cards: dict[tuple[str, str], TaskCard] = {}
    for run in runs:
        name = run.config.task
        summary, source = _described(TASKS, name)
        if summary:
            summary = task_summary(name, {"corpus": run.config.flat.get("task.corpus", "")})
        key = name, summary
        if key not in cards and len(cards) == MOST_TASKS:
            continue
        if key not in cards or not cards[key].samples.samples:
            cards[key] = TaskCard(name, summary, source, run.folder.samples())
    return list(cards.values())


def fix_lines(groups: Groups) -> list[FixLine]:
    """A line for each fix that somebody has described."""
    found = [_fix_line(fix, key) for fix, key in zip(groups.fixes, groups.grouping.arms, strict=True)]
    return [line for line in found if line.summary]


def _fix_line(fix: Fix, key: ArmKey) -> FixLine:
    """With a start the line names two things, and each has its own source."""
    summary, source = _described(FIXES, key.fix)
    start = STARTS.get(key.get(START))  # type: ignore[call-overload]
    if start is None:
        return FixLine(fix, summary, source)
    operator = f"{summary} ({source})" if source else summary
    ours = CLEAR_START if start.positions is not None or start.logits is not None else ""
    return FixLine(fix, "; ".join(filter(None, [operator, f"before the first step, {start.summary}"])), ours)


def _described(registry: Any, name: str) -> tuple[str, str]:
    """The summary and the source of a name; empty for one that is not known here."""
    try:
        entry = registry.entry(name)
    except UnknownNameError:
        return "", ""
    return entry.summary, entry.source


def use(groups: Groups, comparisons: Sequence[Comparison]) -> Use | None:
    """The fix that helps most, or, while nothing is decided, the one that left the plateau most often; None for plain softmax,
    where no run left the plateau, and where it is a control of ours that no line of code gives."""
    best = best_comparison(comparisons)
    key = best.arm.key if best is not None else _most_leaps(groups)
    if key is None or (key.fix == BASELINE and not key.controls) or any(name != START for name, _ in key.controls):
        return None
    first = next(run for run in groups.runs if ArmKey.of(run.config) == key)
    return Use(groups.fix(key), best is not None, _code(key, _settings(first), first.config.steps), _note(key))


def _most_leaps(groups: Groups) -> ArmKey | None:
    leaps: dict[ArmKey, tuple[int, int]] = {}
    for cell in groups.cells:
        had, runs = leaps.get(cell.arm, (0, 0))
        leaps[cell.arm] = had + cell.leaps, runs + len(cell.ended)
    best = max(leaps, key=lambda key: leaps[key][0] / leaps[key][1], default=None)  # of equal ones the baseline, which is first
    return best if best is not None and leaps[best][0] else None


def _settings(run: ReportRun) -> Mapping[str, Any]:
    """The settings that the fix was given; all that its name does not fix, where the recipe is not known."""
    own = {key: value for key, value in run.config.flat.items() if key.startswith("attention.") and key != "attention.name"}
    if run.origin is not None:
        own = {key: value for key, value in own.items() if key in run.origin.changes}
    try:
        fixed = FIXES.entry(run.config.fix).preset
    except UnknownNameError:
        fixed = {}
    return {name: value for key, value in own.items() if (name := key.removeprefix("attention.")) not in fixed}


def _code(key: ArmKey, settings: Mapping[str, Any], steps: int) -> list[str]:
    """Three lines, or four with a start."""
    lines = ["import eureka"]
    if key.fix != BASELINE:
        given = [json.dumps(key.fix), f"settings={dict(settings)!r}" if settings else ""]
        given.append(f"total_steps={steps}" if key.fix in SCHEDULED else "")
        lines.append(f"eureka.patch(model, {', '.join(filter(None, given))})")
    start = STARTS.get(key.get(START))  # type: ignore[call-overload]
    if start is not None and start.positions is not None:
        only = "" if start.logits is not None else ", logits=None"
        lines.append(f"eureka.clear_start(model, inputs{only})")
    return [*lines, "train(model)"]


def _note(key: ArmKey) -> str:
    """What has to be said about the code."""
    patch = "Patch the model before you make its optimiser: a fix may have parameters of its own." if key.fix != BASELINE else ""
    start = "Here `inputs` is one batch, and the model is fresh." if key.get(START) is not None else ""
    return " ".join(filter(None, [patch, start, "Then train as you always do."]))
