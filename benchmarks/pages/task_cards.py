"""One card a task: what it is, a picture of labelled examples, the levels of theory, settings, recipes, source."""

from __future__ import annotations

from benchmarks.pages.made import described, settings_table, table
from eureka.errors import EurekaError
from eureka.recipes import RECIPES
from eureka.registry import Entry
from eureka.tasks.registry import TASKS
from eureka.tasks.task import Task

SAMPLES = 8


def task_card(entry: Entry) -> tuple[str, bytes | None]:
    """The page of a task, and its picture; None where its data are not on this machine."""
    try:
        task = TASKS.build(entry.name)
        picture = _picture(task)
        seen = f"![Labelled examples of {entry.name}]({entry.name}.png)\n\nDrawn by `eureka tasks show {entry.name}`."
        levels = _levels(task)
    except EurekaError as error:
        picture, seen, levels = None, f"Not drawn here: {error}", "Its levels are computed from its data."
    parts = [
        f"# {entry.name}",
        f"{entry.summary[0].upper()}{entry.summary[1:]}.",
        seen,
        "## Levels",
        "Where the plateaus must be: loss and accuracy of the best predictor that knows only part of the task.",
        levels,
        "## How it works",
        described(entry.load()),
        "## Settings",
        settings_table(TASKS, entry),
        "## Recipes",
        _recipes(entry.name),
        f"## Source\n\n{entry.source}.",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n", picture


def _picture(task: Task) -> bytes:
    from torch import Generator

    from eureka.tasks.gallery import gallery

    return gallery(task, task.sample(SAMPLES, Generator().manual_seed(0)))


def _levels(task: Task) -> str:
    return table(
        ["who knows", "loss", "accuracy"], [(one.knows, f"{one.loss:.3f}", f"{one.accuracy:.3f}") for one in task.levels()]
    )


def _recipes(task: str) -> str:
    found = [recipe for recipe in RECIPES.values() if recipe.task == task]
    rows = [(f"`{recipe.name}`", recipe.summary, f"{recipe.parameters:,}") for recipe in found]
    if not rows:
        return f"None: `eureka run tiles --set task.name={task}` tries it."
    return table(["recipe", "what it is", "parameters"], rows)
