"""What was tried and what happened, as a table in Markdown, from run folders: ``python -m benchmarks.regimes DIR…``"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

from eureka.config import RunConfig
from eureka.curves.detector import detect
from eureka.errors import RequestError
from eureka.recipes import RECIPES
from eureka.runs import Metrics, Origin, Run, StoredConfig, find_runs, read_run
from eureka.study.commands import command_of
from eureka.study.plan import origin as origin_of

HEADER = ("run", "theory", "plateau", "steepest", "leap at step", "steps", "accuracy", "seconds")


def nearest_recipe(config: StoredConfig) -> Origin:
    """The recipe of the same task from which a run differs least, for runs that do not record theirs.

    A run that is older than a setting had what is now its default.
    """
    checked = RunConfig.from_json(config.parts)
    same_task = [recipe.name for recipe in RECIPES.values() if recipe.task == config.task]
    if not same_task:
        raise RequestError(f"no recipe has the task {config.task!r}.")
    origins = [origin_of(name, checked) for name in same_task]
    return min(origins, key=lambda origin: ("model.name" in origin.changes, len(origin.changes)))


def row(run: Run) -> list[str] | None:
    """The cells of a run; None while it has not ended."""
    outcome, folder = run.outcome, run.folder
    if outcome is None:
        return None
    levels, leaps = folder.levels(), ", ".join(f"{leap.step:,}" for leap in outcome.moments or ())
    level, steepest = seen(folder.metrics(), bool(leaps))
    return [
        f"`{_command(run)}`",
        _number(levels[0].loss if levels else None),
        _number(level),
        "–" if steepest is None else f"{steepest:,.0f}",
        leaps or "none",
        f"{outcome.steps:,}",
        _number(outcome.final_accuracy),
        f"{outcome.seconds:.0f}",
    ]


def _command(run: Run) -> str:
    command = command_of(run.config, run.folder.origin() or nearest_recipe(run.config))
    return " ".join(command.split(" \\\n  "))  # a cell has one line


def seen(metrics: Sequence[Metrics], leapt: bool) -> tuple[float | None, float | None]:
    """What the detector sees in the validation loss: the level of the last plateau that ended, and where the fall is steepest.

    Without a fall and without a leap the run is one long plateau: the median of its second half. A leap without a plateau that
    the detector would call one has neither.
    """
    losses = [line.validation_loss for line in metrics]
    moments = detect(losses, [line.step for line in metrics]) if len(losses) > 2 else []
    if moments:
        return moments[-1].plateau.level, moments[-1].steepest
    return (None if leapt or not losses else median(losses[len(losses) // 2 :])), None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def table(folders: Iterable[Path]) -> str:
    """The rows of all ended runs below some folders, in the order of the recipes."""
    runs = [run for folder in folders for run in map(read_run, find_runs(folder)) if run is not None]
    rows = [cells for cells in map(row, runs) if cells is not None]
    order = list(RECIPES)
    rows.sort(key=lambda cells: (order.index(cells[0].split()[2].strip("`")), cells[0]))
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(table(map(Path, sys.argv[1:])))
