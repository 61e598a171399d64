"""The command lines that make runs again: from the recipe and the keys that were changed, where a run folder knows them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eureka.formats import setting
from eureka.runs import Origin, StoredConfig
from eureka.study.arms import BASELINE, FIX, LR, SEED, ArmKey, ConditionKey

WIDTH = 110
RECIPE = "tiles"
"""Where a command without a known recipe begins; as it then sets every key, any recipe would do."""

Made = tuple[StoredConfig, Origin | None]
"""A config and the recipe that it was made from."""


@dataclass(frozen=True)
class Commands:
    """Command lines for the terminal."""

    lines: list[str]
    uses_defaults: bool
    """whether one of them leaves the settings of the fixes to their defaults, though the runs may have had others"""


def command_of(config: StoredConfig, origin: Origin | None) -> str:
    """The `eureka run` that makes a run: its recipe with the changed keys, or every key where the recipe is not known.

    >>> command_of(StoredConfig({}), Origin("small/main", {"training.lr": 0.002}))
    'eureka run small/main --set training.lr=0.002'
    """
    recipe, changes = _start(config, origin)
    return _joined(["eureka", "run", recipe], changes)


def commands_of(runs: Sequence[Made]) -> Commands:
    """The commands that make these runs: one `eureka compare` for each full grid, `eureka run` for the others."""
    lines: list[str] = []
    uses_defaults = False
    for alike in _alike(runs):
        grid = _compare(alike)
        lines += [grid] if grid else [command_of(config, origin) for config, origin in alike]
        uses_defaults = uses_defaults or (grid is not None and alike[0][1] is None)
    return Commands(lines, uses_defaults)


def _start(config: StoredConfig, origin: Origin | None) -> tuple[str, Mapping[str, Any]]:
    if origin is not None:
        return origin.recipe, origin.changes
    return RECIPE, {key: value for key, value in config.flat.items() if (key, value) != ("task.name", RECIPE)}


def _alike(runs: Sequence[Made]) -> list[list[Made]]:
    """The runs of one recipe that differ in nothing but what `eureka compare` has options for: fix, learning rate and seed."""
    groups: dict[Any, list[Made]] = {}
    for config, origin in runs:
        recipe = None if origin is None else origin.recipe
        groups.setdefault((recipe, ConditionKey.of(config), ArmKey.of(config).controls), []).append((config, origin))
    return list(groups.values())


def _compare(alike: Sequence[Made]) -> str | None:
    """One `eureka compare`, if there are several runs and they are a full grid of fixes, learning rates and seeds 0 to N - 1."""
    configs = [config for config, _ in alike]
    fixes = sorted({config.fix for config in configs}, key=lambda fix: (fix != BASELINE, fix))
    rates, seeds = sorted({config.lr for config in configs}), {config.seed for config in configs}
    grid = {(config.fix, config.lr, config.seed) for config in configs}
    full = {(fix, lr, seed) for fix in fixes for lr in rates for seed in range(len(seeds))}
    if len(alike) == 1 or grid != full or len(alike) != len(grid) or _own_settings(alike, len(fixes)):
        return None
    recipe, changes = _start(*alike[0])
    chosen = ["--fix", ",".join(fixes), "--lr", ",".join(map(repr, rates)), "--seeds", str(len(seeds))]
    return _joined(["eureka", "compare", recipe, *chosen], {key: value for key, value in changes.items() if not _is_option(key)})


def _own_settings(alike: Sequence[Made], fixes: int) -> bool:
    """Whether a fix was given settings of its own, for which `eureka compare` has no options."""
    changed = any(_is_option(key) and key not in (FIX, LR, SEED) for _, origin in alike if origin for key in origin.changes)
    return changed or len({ArmKey.of(config) for config, _ in alike}) > fixes


def _is_option(key: str) -> bool:
    return key in (LR, SEED) or key.startswith("attention.")


def _joined(start: Sequence[str], changes: Mapping[str, Any]) -> str:
    """One command over several lines, broken only between its options."""
    lines = [shlex.join(start)]
    for key, value in changes.items():
        option = f"--set {shlex.quote(f'{key}={setting(value)}')}"
        if len(lines[-1]) + len(option) < WIDTH:
            lines[-1] += f" {option}"
        else:
            lines.append(f"  {option}")
    return " \\\n".join(lines)
