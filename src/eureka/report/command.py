"""How to make the runs and the page again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eureka.formats import setting
from eureka.report.groups import Groups
from eureka.report.markup import Html, join, tag
from eureka.report.reading import ReportRun
from eureka.runs import find_runs
from eureka.study.settings import INDIFFERENT

WIDTH = 110
RECIPE = "tiles"
"""Where the commands begin; as they name the task and every other setting, any recipe would do."""
DEFAULTS = "`eureka compare` uses every fix with its default settings; those that were used here are in the config above."
VARIED = ("attention.name", "training.lr", "training.seed")


def again(groups: Groups, folders: Sequence[Path], output: Path) -> Html:
    """The commands for the terminal, in order: first the runs, then the page."""
    page = shlex.join(["eureka", "report", *map(str, _places(groups.runs, folders)), "-o", str(output)])
    grids = [(_compare(alike), alike) for alike in _alike(groups.runs)]
    lines = [line for grid, alike in grids for line in ([grid] if grid else _each(alike))]
    remark = [tag("p", DEFAULTS, class_="quiet")] if any(grid for grid, _ in grids) else []
    return join(tag("pre", tag("code", "\n".join([*lines, page]))), *remark)


def _places(runs: Sequence[ReportRun], folders: Sequence[Path]) -> Sequence[Path]:
    """The folders that hold the runs, if they hold no others, rather than a hundred run folders."""
    parents = list(dict.fromkeys(run.folder.path.parent for run in runs))
    together = {found.path for parent in parents for found in find_runs(parent)} == {run.folder.path for run in runs}
    return parents if together and len(parents) < len(folders) else folders


def _alike(runs: Sequence[ReportRun]) -> list[list[ReportRun]]:
    """The runs that differ in nothing but fix, learning rate and seed."""
    groups: dict[str, list[ReportRun]] = {}
    for run in runs:
        shared = {key: value for key, value in run.config.items() if not _varied(key) and key not in INDIFFERENT}
        groups.setdefault(repr(sorted(shared.items())), []).append(run)
    return list(groups.values())


def _varied(key: str) -> bool:
    """Whether `eureka compare` has an option for it."""
    return key in VARIED or key.startswith("attention.")


def _compare(alike: Sequence[ReportRun]) -> str | None:
    """One `eureka compare`, if the runs are a full grid of fixes, learning rates and the seeds 0 to N - 1."""
    fixes = sorted({run.fix for run in alike}, key=lambda fix: (fix != "softmax", fix))
    rates, seeds = sorted({run.lr for run in alike}), {run.seed for run in alike}
    grid = {(run.fix, run.lr, run.seed) for run in alike}
    full = {(fix, lr, seed) for fix in fixes for lr in rates for seed in range(len(seeds))}
    if grid != full or len(alike) != len(grid) or _own_settings(alike) > len(fixes):
        return None
    chosen = ["--fix", ",".join(fixes), "--lr", ",".join(map(repr, rates)), "--seeds", str(len(seeds))]
    changes = [(key, value) for key, value in alike[0].config.items() if not _varied(key)]
    return _joined(["eureka", "compare", RECIPE, *chosen], changes)


def _own_settings(runs: Sequence[ReportRun]) -> int:
    """How many fixes there are, counting one with other settings of its own as another."""
    return len({repr(sorted(run.parts["attention"].items())) for run in runs})


def _each(runs: Sequence[ReportRun]) -> list[str]:
    """One `eureka run` for each run, with every setting spelled out, since no grid describes them."""
    return [_joined(["eureka", "run", RECIPE], list(run.config.items())) for run in runs]


def _joined(start: Sequence[str], changes: Sequence[tuple[str, Any]]) -> str:
    """One command over several lines, broken only between its options."""
    sets = [f"--set {shlex.quote(f'{key}={setting(value)}')}" for key, value in changes if (key, value) != ("task.name", RECIPE)]
    lines = [shlex.join(start)]
    for option in sets:
        if len(lines[-1]) + len(option) < WIDTH:
            lines[-1] += f" {option}"
        else:
            lines.append(f"  {option}")
    return " \\\n".join(lines)
