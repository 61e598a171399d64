"""The command lines that make runs again: from the recipe and the keys that were changed, where a run folder knows them."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eureka.formats import setting
from eureka.runs import Origin, StoredConfig
from eureka.study.arms import BASELINE, FIX, LR, SEED, ArmKey, ConditionKey
from eureka.study.fix_choice import FixChoice

START = "model.start"
WIDTH = 60
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
    return _joined(["eureka", "run", recipe], _set(changes))


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
    """The runs of one recipe that differ in nothing but what `eureka compare` has options for: fix, start, rate and seed."""
    groups: dict[Any, list[Made]] = {}
    for config, origin in runs:
        recipe = None if origin is None else origin.recipe
        controls = tuple(one for one in ArmKey.of(config).controls if one[0] != START)
        groups.setdefault((recipe, ConditionKey.of(config), controls), []).append((config, origin))
    return list(groups.values())


def _compare(alike: Sequence[Made]) -> str | None:
    """One `eureka compare`, if there are several runs and they are a full grid of fixes, starts, rates and seeds 0 to N - 1."""
    configs = [config for config, _ in alike]
    choices = [str(_choice(*one)) for one in alike]
    fixes = sorted(set(choices), key=lambda fix: (fix != BASELINE, fix))
    starts = _distinct(config.flat.get(START) for config in configs)
    rates, seeds = sorted({config.lr for config in configs}), {config.seed for config in configs}
    grid = {(fix, config.flat.get(START), config.lr, config.seed) for fix, config in zip(choices, configs, strict=True)}
    full = set(itertools.product(fixes, starts, rates, range(len(seeds))))
    arms = {(ArmKey.of(config).fix, ArmKey.of(config).settings) for config in configs}
    if len(alike) == 1 or grid != full or len(alike) != len(grid) or len(arms) > len(fixes):
        return None
    recipe, changes = _start(*alike[0])
    options = [("--fix", ",".join(fixes))]
    options += [("--start", ",".join(map(str, starts)))] if len(starts) > 1 else []
    options += [("--lr", ",".join(map(repr, rates)))] if _chose_rates(alike) else []
    told = {LR, SEED, *([START] if len(starts) > 1 else [])}
    others = {key: value for key, value in changes.items() if key not in told and not key.startswith("attention.")}
    return _joined(["eureka", "compare", recipe], [*options, ("--seeds", str(len(seeds))), *_set(others)])


def _choice(config: StoredConfig, origin: Origin | None) -> FixChoice:
    """The fix of a run, with the settings that it was given; where the recipe is not known they are left out."""
    given = {} if origin is None else {key: value for key, value in origin.changes.items() if key.startswith("attention.")}
    return FixChoice(config.fix, {key.removeprefix("attention."): value for key, value in given.items() if key != FIX})


def _chose_rates(alike: Sequence[Made]) -> bool:
    """Whether some run has another learning rate than its recipe, or none is known."""
    return any(origin is None or LR in origin.changes for _, origin in alike)


def _distinct(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _set(changes: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [("--set", f"{key}={setting(value)}") for key, value in changes.items()]


def _joined(start: Sequence[str], options: Iterable[tuple[str, str]]) -> str:
    """One command over several lines, broken only between its options."""
    lines = [shlex.join(start)]
    for option in map(shlex.join, options):
        if len(lines[-1]) + len(option) < WIDTH:
            lines[-1] += f" {option}"
        else:
            lines.append(f"  {option}")
    return " \\\n".join(lines)
