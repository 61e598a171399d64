"""How to make the runs and the page again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eureka.report.formats import setting
from eureka.report.groups import Groups
from eureka.report.reading import ReportRun
from eureka.report.settings import split

VARIED = ("attention.name", "training.lr", "training.seed")


def commands(groups: Groups, folders: Sequence[Path], output: Path) -> list[str]:
    """The commands, in order: first the runs, then the page."""
    page = shlex.join(["eureka", "report", *map(str, folders), "-o", str(output)])
    return [*(_compare(groups) or _each(groups.runs)), page]


def _compare(groups: Groups) -> list[str] | None:
    """One `eureka compare`, if the runs are a full grid of fixes, learning rates and the seeds 0 to N - 1."""
    runs = groups.runs
    common, differing = split([run.config for run in runs])
    if any(key not in VARIED and not key.startswith("attention.") for key, _ in differing) or _own_settings_vary(groups):
        return None
    grid = {(run.fix, run.lr, run.seed) for run in runs}
    fixes, rates, seeds = (list(dict.fromkeys(values)) for values in zip(*sorted(grid, key=str), strict=True))
    full = {(fix, lr, seed) for fix in fixes for lr in rates for seed in range(len(seeds))}
    if grid != full or len(runs) != len(grid):
        return None
    names = [name for name in dict.fromkeys(run.fix for run in runs)]
    chosen = ["--fix", ",".join(names), "--lr", ",".join(f"{lr!r}" for lr in sorted(rates)), "--seeds", str(len(seeds))]
    changes = [(key, values[0]) for key, values in common if key not in VARIED and not key.startswith("attention.")]
    return [_joined(["eureka", "compare", _recipe(runs), *chosen], changes)]


def _own_settings_vary(groups: Groups) -> bool:
    return len(groups.fixes) > len({run.fix for run in groups.runs})


def _each(runs: Sequence[ReportRun]) -> list[str]:
    """One `eureka run` for each run, with every setting spelled out, since no grid describes them."""
    return [_joined(["eureka", "run", _recipe([run])], list(run.config.items())) for run in runs]


def _recipe(runs: Sequence[ReportRun]) -> str:
    """Recipes are named for their task; every other setting is given, so nothing depends on the recipe's own."""
    return str(runs[0].config["task.name"])


def _joined(start: Sequence[str], changes: Sequence[tuple[str, Any]]) -> str:
    sets = [f"--set {shlex.quote(f'{key}={setting(value)}')}" for key, value in changes if not key == "task.name"]
    return " ".join([shlex.join(start), *sets])
