"""What the shell offers after Tab: recipes, fixes, starts, tasks, data sets and config keys. No torch.

Typer asks; `eureka --install-completion` tells the shell to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eureka.registry import Registry

WIDTH = 70
Offer = tuple[str, str]
"""What to type, and what it is."""


def complete_recipe(incomplete: str) -> list[Offer]:
    from eureka.recipes import RECIPES

    return _beginning(incomplete, {name: recipe.summary for name, recipe in RECIPES.items()})


def complete_fix(incomplete: str) -> list[Offer]:
    """One fix."""
    return _beginning(incomplete, _fixes())


def complete_fixes(incomplete: str) -> list[Offer]:
    """Fixes with commas between them: the last one is completed, and none is offered twice."""
    return _listed(incomplete, _fixes())


def complete_starts(incomplete: str) -> list[Offer]:
    from eureka.models.start import STARTS

    return _listed(incomplete, {name: kind.summary for name, kind in STARTS.items()})


def complete_task(incomplete: str) -> list[Offer]:
    from eureka.tasks.registry import TASKS

    return _beginning(incomplete, {entry.name: entry.summary for entry in TASKS.entries()})


def complete_data(incomplete: str) -> list[Offer]:
    from eureka.data.catalogue import CATALOGUE

    return _beginning(incomplete, {name: dataset.summary for name, dataset in CATALOGUE.items()})


def complete_key(incomplete: str) -> list[Offer]:
    """A config key with its equals sign; names of parts after it."""
    from eureka.attention.registry import FIXES
    from eureka.cli.key_names import KEY_NAMES
    from eureka.models.registry import MODELS
    from eureka.tasks.registry import TASKS

    parts: dict[str, Registry[Any]] = {"attention.name=": FIXES, "model.name=": MODELS, "task.name=": TASKS}
    for start, registry in parts.items():
        if incomplete.startswith(start):
            return _beginning(incomplete, {f"{start}{entry.name}": entry.summary for entry in registry.entries()})
    return _beginning(incomplete, {f"{name}=": "" for name in KEY_NAMES})


def complete_study(incomplete: str) -> list[Offer]:
    """Files of studies, and the word 'status'."""
    return _beginning(incomplete, {"status": "how a study is doing"} | dict.fromkeys(_files((".yaml", ".yml")), ""))


def _files(endings: tuple[str, ...]) -> Iterable[str]:
    return sorted(path.name for path in Path.cwd().iterdir() if path.suffix in endings)


def _fixes() -> dict[str, str]:
    from eureka.attention.registry import FIXES

    return {entry.name: entry.summary for entry in FIXES.entries()}


def _beginning(incomplete: str, known: Mapping[str, str]) -> list[Offer]:
    """A summary on one line: Typer breaks longer ones, and the shell would offer the second line."""
    return [(name, shorten(told, WIDTH, placeholder=" …")) for name, told in known.items() if name.startswith(incomplete)]


def _listed(incomplete: str, known: Mapping[str, str]) -> list[Offer]:
    before, comma, last = incomplete.rpartition(",")
    chosen = before.split(",")
    return [(f"{before}{comma}{name}", told) for name, told in _beginning(last, known) if name not in chosen]
