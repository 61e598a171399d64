"""What was tried and what happened, as a table in Markdown, from run folders: ``python -m benchmarks.regimes DIR…``"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from eureka.study.statistics import flatten

from eureka.config import run_config
from eureka.curves.detector import detect
from eureka.errors import RequestError
from eureka.recipes import RECIPES
from eureka.runs import Record, RunFolder, find_runs

HEADER = ("recipe", "fix", "changed", "seed", "theory", "plateau", "steepest", "leap at step", "steps", "accuracy", "seconds")
NOT_A_CHANGE = {"training.seed", "attention.name"}  # they have columns of their own


def nearest_recipe(config: Record) -> tuple[str, dict[str, Any]]:
    """The recipe that a run came from, and what was changed: the one of the same task from which it differs least.

    A run that is older than a setting had what is now its default.
    """
    given = flatten(run_config(**config).to_json())
    same_task = [recipe for recipe in RECIPES.values() if recipe.task == config["task"]["name"]]
    if not same_task:
        raise RequestError(f"no recipe has the task {config['task']['name']!r}.")
    changed = {}
    for recipe in same_task:
        standard = flatten(recipe.make().to_json())
        changed[recipe.name] = {key: value for key, value in given.items() if standard.get(key, value) != value}
    name = min(changed, key=lambda name: ("model.name" in changed[name], len(changed[name])))
    return name, {key: value for key, value in changed[name].items() if key not in NOT_A_CHANGE}


def row(run: RunFolder) -> list[str] | None:
    """One ended run; None while it has not ended."""
    config, result = run.config(), run.result()
    if config is None or result is None:
        return None
    name, changed = nearest_recipe(config)
    shown = ", ".join(f"{key.removeprefix('training.')}={value}" for key, value in changed.items())
    leaps = ", ".join(f"{moment['step']:,}" for moment in result["moments"])
    level, steepest = seen(run.metrics(), bool(leaps))
    return [
        name,
        config["attention"]["name"],
        shown or "–",
        str(config["training"]["seed"]),
        _number(run.levels()[0]["loss"] if run.levels() else None),
        _number(level),
        "–" if steepest is None else f"{steepest:,.0f}",
        leaps or "none",
        f"{result['steps']:,}",
        _number(result["final_accuracy"]),
        f"{result['seconds']:.0f}",
    ]


def seen(metrics: Sequence[Record], leapt: bool) -> tuple[float | None, float | None]:
    """What the detector sees in the validation loss: the level of the last plateau that ended, and where the fall is steepest.

    Without a fall and without a leap the run is one long plateau: the median of its second half. A leap without a plateau that
    the detector would call one has neither.
    """
    losses = [record["validation_loss"] for record in metrics]
    falls = detect(losses, [record["step"] for record in metrics]) if len(losses) > 2 else []
    if falls:
        return falls[-1].plateau.level, falls[-1].steepest
    return (None if leapt or not losses else median(losses[len(losses) // 2 :])), None


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def table(folders: Iterable[Path]) -> str:
    """The rows of all ended runs below some folders, in the order of the recipes."""
    rows = [found for folder in folders for run in find_runs(folder) if (found := row(run)) is not None]
    order = list(RECIPES)
    rows.sort(key=lambda cells: (order.index(cells[0]), cells[2], cells[1], int(cells[3])))
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    sys.stdout.write(table(map(Path, sys.argv[1:])))
