"""`eureka recipes`, `eureka fixes`, `eureka tasks`: what there is, one line each."""

from __future__ import annotations

import sys
import textwrap
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
    """List the fixes: attention operators that `--fix` and `eureka.patch` take; and the starts that `--start` takes."""
    from eureka.attention.registry import FIXES
    from eureka.models.start import EXPLANATION, STARTS

    if json:
        starts = [{"name": name, "summary": kind.summary} for name, kind in STARTS.items()]
        print_json({"fixes": _described(FIXES), "starts": starts})
        return
    _print(FIXES, "fixes", json)
    print_table(["start", "what it is"], [(name, kind.summary) for name, kind in STARTS.items()])
    sys.stdout.write(f"{textwrap.fill(EXPLANATION, 110)}\n")


def tasks(json: JsonOption = False) -> None:
    """List the tasks: what models are trained on."""
    from eureka.tasks.registry import TASKS

    _print(TASKS, "tasks", json)


def _print(registry: Registry[Any], plural: str, json: bool) -> None:
    if json:
        print_json({plural: _described(registry)})
    else:
        rows = [(e.name, e.summary, e.source) for e in registry.entries()]
        print_table([registry.kind, "what it is", "source"], rows)


def _described(registry: Registry[Any]) -> list[dict[str, str]]:
    return [{"name": e.name, "summary": e.summary, "source": e.source} for e in registry.entries()]
