"""The curves as the page's script gets them: every logged value once, every list of steps once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from eureka.report.groups import Groups
from eureka.report.reading import ReportRun
from eureka.report.thinning import thin
from eureka.runs import Record

SERIES = {
    "loss": "validation_loss",
    "accuracy": "validation_accuracy",
    "trainLoss": "train_loss",
    "trainAccuracy": "train_accuracy",
}
"""What the script calls each column of metrics.jsonl."""


def picture_data(groups: Groups) -> Record:
    """Everything that the pictures show."""
    steps: dict[tuple[int, ...], int] = {}
    runs = []
    for run, fix, panel in zip(groups.runs, groups.fix_of, groups.panel_of, strict=True):
        metrics = thin(run.metrics, list(SERIES.values()), keep=_leap_steps(run))
        if metrics:
            shared = steps.setdefault(tuple(record["step"] for record in metrics), len(steps))
            curves = {name: [_value(record.get(column)) for record in metrics] for name, column in SERIES.items()}
            runs.append(
                {
                    "fix": fix,
                    "panel": panel,
                    "seed": run.seed,
                    "state": run.state,
                    "steps": shared,
                    **curves,
                    "leaps": _leaps(run),
                }
            )
    return {
        "fixes": [{"name": name, "symbol": mark.symbol} for name, mark in zip(groups.fixes, groups.marks, strict=True)],
        "panels": [{"name": name, "levels": _levels(groups, panel)} for panel, name in enumerate(groups.panels)],
        "steps": [list(shared) for shared in steps],
        "runs": runs,
        "lossTop": loss_top(groups.runs),
    }


def _levels(groups: Groups, panel: int) -> list[Record]:
    """The levels of the panel's task: the settings that decide them are the same for all of its runs."""
    here = (run for run, its in zip(groups.runs, groups.panel_of, strict=True) if its == panel)
    return list(next((run.levels for run in here if run.levels), []))


def _leaps(run: ReportRun) -> list[Record]:
    """Every plateau that the run left; `last` is the one that counts, the Eureka-moment."""
    result = run.result or {}
    at = {record["step"]: record for record in run.metrics}
    leaps = []
    for moment in result.get("moments", []):
        record = at.get(moment["step"], {})
        values = {"loss": _value(record.get("validation_loss")), "accuracy": _value(record.get("validation_accuracy"))}
        last = moment["step"] == result["eureka_step"] and moment["level"] == len(run.levels) - 2
        leaps.append({"step": moment["step"], "onset": moment["onset"], "last": last, **values})
    return leaps


def _leap_steps(run: ReportRun) -> set[int]:
    return {moment[when] for moment in (run.result or {}).get("moments", []) for when in ("onset", "step")}


def _value(value: Any) -> float | None:
    """Five digits are more than a screen shows; what is not a number is a gap."""
    return float(f"{value:.5g}") if isinstance(value, int | float) and math.isfinite(value) else None


def loss_top(runs: Sequence[ReportRun]) -> float | None:
    """Where the loss axis ends: above all that is drawn, but one run that explodes does not press the others flat.

    Everything up to three times the higher of the highest plateau and the usual first loss is shown; zooming out shows the rest.
    """
    first = sorted(loss for run in runs if run.metrics and (loss := _value(run.metrics[0].get("validation_loss"))) is not None)
    if not first:
        return None
    usual = max([first[len(first) // 2], *(level["loss"] for run in runs for level in run.levels)])
    highest = max(loss for run in runs for record in run.metrics if (loss := _value(record.get("validation_loss"))) is not None)
    return 1.05 * min(highest, 3 * usual) or None
