"""`eureka recipes`, `eureka fixes`, `eureka tasks`: what there is, one line each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table

if TYPE_CHECKING:
    from eureka.registry import Registry


def recipes(json: JsonOption = False) -> None:
    """List the recipes: named configs that `compare` and `run` take."""
    from eureka.recipes import RECIPES

    found = RECIPES.values()
    if json:
        print_json(
            {
                "recipes": [
                    {"name": r.name, "summary": r.summary, "task": r.task, "parameters": r.parameters, "minutes": r.minutes}
                    for r in found
                ]
            }
        )
        return
    rows = [(r.name, r.summary, f"{r.parameters:,}", "–" if r.minutes is None else f"{r.minutes:g}") for r in found]
    print_table(["recipe", "what it is", "parameters", "minutes a run"], rows)


def fixes(json: JsonOption = False) -> None:
    """List the fixes: attention operators that `--fix` and `eureka.patch` take."""
    from eureka.attention.registry import FIXES

    _print(FIXES, "fixes", json)


def tasks(json: JsonOption = False) -> None:
    """List the tasks: what models are trained on."""
    from eureka.tasks.registry import TASKS

    _print(TASKS, "tasks", json)


def _print(registry: Registry[Any], plural: str, json: bool) -> None:
    entries = registry.entries()
    if json:
        print_json({plural: [{"name": e.name, "summary": e.summary, "source": e.source} for e in entries]})
    else:
        print_table([registry.kind, "what it is", "source"], [(e.name, e.summary, e.source) for e in entries])
