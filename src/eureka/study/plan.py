"""A study as a file: what to vary around a recipe, checked whole before the first run.

::

    recipe: tiles
    set:                                  # for all runs; optional
      training.steps: 1500
    variants:                             # arms that are no full grid; optional
      - {attention.name: softmax}
      - {attention.name: softmax, training.qk_lr_scale: 10}
    grid:                                 # every combination, for each variant
      training.lr: [1e-4, 3e-4]
      training.seed: 6                    # a number of seeds: 0 to 5
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from eureka.errors import RequestError, UnknownNameError
from eureka.recipes import recipe
from eureka.study.grid import Study

KEYS = ("recipe", "set", "variants", "grid")


def read_plan(path: Path, folder: Path) -> Study:
    """The study that a YAML file describes; every problem is told at once."""
    plan = _load(path)
    problems = [str(UnknownNameError("key of a study", key, KEYS)) for key in plan if key not in KEYS]
    if "recipe" not in plan:
        problems.append("the key 'recipe' is missing.")
    grid, set_, variants = plan.get("grid") or {}, plan.get("set") or {}, plan.get("variants") or [{}]
    problems += _shape_problems(grid, set_, variants)
    if problems:
        raise RequestError(f"{path}: {' '.join(problems)}")
    try:
        base = recipe(str(plan["recipe"]))
        return Study.of(base, _combinations(set_, variants, grid), folder)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None


def _load(path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        plan = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is not text'}.") from None
    except yaml.YAMLError as error:
        raise RequestError(f"{path} is not YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(plan, Mapping):
        raise RequestError(f"{path} holds no study: expected the keys {', '.join(KEYS)}.")
    return plan


def _shape_problems(grid: Any, set_: Any, variants: Any) -> Iterator[str]:
    if not isinstance(grid, Mapping):
        yield "'grid' must map config keys to lists of values."
    if not isinstance(set_, Mapping):
        yield "'set' must map config keys to values."
    if not (isinstance(variants, list) and all(isinstance(variant, Mapping) for variant in variants)):
        yield "'variants' must be a list of maps from config keys to values."


def _combinations(
    set_: Mapping[str, Any], variants: list[Mapping[str, Any]], grid: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    values = [_values(key, given) for key, given in grid.items()]
    for chosen in itertools.product(*values):  # variants change fastest, so that early results compare arms
        for variant in variants:
            yield {**set_, **dict(zip(grid, chosen, strict=True)), **variant}


def _values(key: str, given: Any) -> list[Any]:
    if key == "training.seed" and isinstance(given, int):
        if given < 1:
            raise RequestError(f"training.seed: {given}: at least one seed is needed.")
        return list(range(given))
    return given if isinstance(given, list) else [given]
