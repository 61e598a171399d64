"""A study: configs around a base, from Python or from a file, and the folder where their runs are.

A file says what to vary around a recipe, and is checked whole before the first run::

    recipe: tiles
    set:                                  # for all runs; optional
      training.steps: 1500
    variants:                             # arms that are no full grid; optional
      - {attention.name: softmax}
      - {attention.name: softmax, training.qk_lr_scale: 10}
    grid:                                 # every combination, for each variant
      training.lr: [1e-4, 3e-4]
      training.seed: 6                    # a number of seeds: 0 to 5; or a list of them

Or it names the files of several studies, which are carried out one after the other, each in a folder of its own::

    studies: [tiles.yaml, digits.yaml]
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from eureka.config import RunConfig
from eureka.errors import RequestError, UnknownNameError
from eureka.experiment import check_contracts
from eureka.files import make_folder
from eureka.recipes import recipe as find_recipe
from eureka.runs import Origin, Outcome, Run, RunFolder, StoredConfig

MOST_RUNS = 10_000
"""Runs of a study, unless more are asked for."""
LARGEST_COUNT = 2**62
"""A range of more seeds than that has no length in Python."""
KEYS = ("recipe", "set", "variants", "grid")
"""The keys of a study's file."""
SEVERAL = "studies"
"""The only key of a file that names several studies."""


@dataclass(frozen=True)
class Study:
    """Configs and a folder with one run folder for each; the same config always gets the same folder."""

    folder: Path
    configs: Sequence[RunConfig]
    recipe: str | None = None
    """the name of the recipe that the configs are made from; None if they are made in Python"""

    @classmethod
    def over(cls, base: RunConfig, grid: Mapping[str, Sequence[Any]], folder: Path, recipe: str | None = None) -> Study:
        """Every combination of the values given for each key; the key named last changes fastest."""
        changes = (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values()))
        return cls.of(base, changes, folder, recipe)

    @classmethod
    def of(cls, base: RunConfig, changes: Iterable[Mapping[str, Any]], folder: Path, recipe: str | None = None) -> Study:
        """A run for each set of changes, the same run only once; every problem is told at once."""
        problems: list[str] = []
        configs: dict[str, RunConfig] = {}
        for change in changes:
            try:
                config = base.but(change)
                configs.setdefault(config.digest(), config)
            except RequestError as error:
                problems.append(str(error))
        if problems:
            raise RequestError(" ".join(dict.fromkeys(problems)))
        return cls(folder, list(configs.values()), recipe)

    def check(self) -> None:
        """Refuse parts that break their contract, and a folder that cannot be made."""
        check_contracts(self.configs)
        make_folder(self.folder)

    def prepare(self) -> list[RunFolder]:
        """Lay out the run folders, so that the whole study can be seen before its first run has begun."""
        self.check()
        return [self._prepare(config) for config in self.configs]

    def runs(self) -> list[Run]:
        """All its runs as they are now, also those whose folders are not laid out yet."""
        return [self._run(config) for config in self.configs]

    def only(self, runs: Iterable[Run]) -> Study:
        """The same study with some of its runs."""
        names = {run.folder.name for run in runs}
        return replace(self, configs=[config for config in self.configs if run_name(config) in names])

    def _run(self, config: RunConfig) -> Run:
        folder = RunFolder(self.folder / run_name(config))
        return Run(folder, StoredConfig(config.to_json()), folder.result())

    def check_known(self, outcomes: Mapping[str, Outcome], path: Path) -> None:
        """Refuse a table with more steps of a run than its config has."""
        for config in self.configs:
            name, most = run_name(config), config.training.steps
            if name in outcomes and (steps := outcomes[name].steps) > most:
                raise RequestError(f"{path}: {name} has steps = {steps}, and in this study it has at most {most}.")

    def take(self, outcomes: Mapping[str, Outcome]) -> int:
        """Take the outcomes of runs that were done elsewhere; a run that has begun here is left alone. How many there were.

        The name of a run has the digest of its config, so the same name is the same run.
        """
        taken = [run for run in self.prepare() if run.name in outcomes and not run.metrics_file.exists() and run.result() is None]
        for run in taken:
            run.write_result(outcomes[run.name])
        return len(taken)

    def _prepare(self, config: RunConfig) -> RunFolder:
        run = RunFolder(self.folder / run_name(config))
        there = run.lay_out()
        unplanned = "config.json" not in there or run.config() is None
        if unplanned or (self.recipe is not None and "recipe.json" not in there):
            made_from = None if self.recipe is None else origin(self.recipe, config)
            run.write_plan(StoredConfig(config.to_json()), made_from)
        return run


def run_name(config: RunConfig) -> str:
    """Readable, and unique for the config: ``softmax-lr0.0003-seed0-1f2e3d4c5b6a``."""
    fix = config.attention.name.replace(":", ".")  # of module:Class; not every file system allows a colon
    return f"{fix}-lr{config.training.lr:g}-seed{config.training.seed}-{config.digest()}"


def origin(recipe: str, config: RunConfig) -> Origin:
    """The recipe and the keys to change so that it gives the config.

    A new name brings its own defaults, so only what differs from those is told besides.
    """
    base, wanted, chosen = _recipe_json(recipe), config.to_json(), config.chosen()
    names: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for part, values in wanted.items():
        if values.get("name") != base[part].get("name"):
            names[f"{part}.name"] = values["name"]
            values, start = chosen[part], {"name": values["name"]}
        else:
            start = base[part]
        others |= {f"{part}.{key}": value for key, value in values.items() if key not in start or start[key] != value}
    return Origin(recipe, names | others)


@cache
def _recipe_json(name: str) -> dict[str, dict[str, Any]]:
    return find_recipe(name).to_json()


def check_count(runs: int, most: int) -> None:
    """Refuse a study of more runs than somebody is likely to mean, before any of them is made."""
    if runs > most:
        raise RequestError(f"that is a study of {runs:,} runs, more than {most:,}; allow so many with --max-runs {runs}.")


def read_plans(path: Path, folder: Path, most: int = MOST_RUNS) -> list[Study]:
    """The study that a YAML file describes, in the folder; or those that it names, each in a folder below it."""
    plan = _load(path)
    if SEVERAL not in plan:
        return [_study(plan, path, folder, most)]
    files = plan[SEVERAL]
    if len(plan) > 1 or not (isinstance(files, list) and files and all(isinstance(file, str) for file in files)):
        raise RequestError(f"{path}: '{SEVERAL}' must be a list of files, and the only key.")
    folders: dict[Path, Path] = {}
    for file in dict.fromkeys(map(Path, files)):
        here = folder / file.stem
        if here in folders:
            raise RequestError(
                f"{path}: {folders[here]} and {file} would both keep their runs in {here}; give one file another name."
            )
        folders[here] = file
    return [read_plan(path.parent / file, here, most) for here, file in folders.items()]


def read_plan(path: Path, folder: Path, most: int = MOST_RUNS) -> Study:
    """The study that a YAML file describes; every problem is told at once. A study of more than `most` runs is refused."""
    return _study(_load(path), path, folder, most)


def _study(plan: Mapping[str, Any], path: Path, folder: Path, most: int) -> Study:
    problems = [str(UnknownNameError("key of a study", str(key), KEYS)) for key in plan if key not in KEYS]
    if "recipe" not in plan:
        problems.append("the key 'recipe' is missing.")
    grid, set_, variants = plan.get("grid") or {}, plan.get("set") or {}, plan.get("variants") or [{}]
    problems += _shape_problems(grid, set_, variants)
    if problems:
        raise RequestError(f"{path}: {' '.join(problems)}")
    try:
        recipe = str(plan["recipe"])
        check_count(len(variants) * math.prod(len(_values(key, given)) for key, given in grid.items()), most)
        return Study.of(find_recipe(recipe), _combinations(set_, variants, grid), folder, recipe)
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None


def _load(path: Path) -> Mapping[str, Any]:
    from eureka.study.yaml_file import read_yaml

    plan = read_yaml(path)
    if not isinstance(plan, Mapping):
        raise RequestError(f"{path} holds no study: expected the keys {', '.join(KEYS)}.")
    return plan


def _shape_problems(grid: Any, set_: Any, variants: Any) -> Iterator[str]:
    for name, given in {"grid": grid, "set": set_}.items():
        if isinstance(given, Mapping) and not all(isinstance(key, str) for key in given):
            yield f"the keys of '{name}' must be config keys, such as training.lr."
    if not isinstance(grid, Mapping):
        yield "'grid' must map config keys to lists of values."
    else:
        empty = [key for key, given in grid.items() if given == []]
        yield from (f"{key}: []: the list is empty; give it a value, or leave the key out." for key in empty)
    if not isinstance(set_, Mapping):
        yield "'set' must map config keys to values."
    if not (isinstance(variants, list) and all(map(_is_variant, variants))):
        yield "'variants' must be a list of maps from config keys to values."


def _is_variant(given: Any) -> bool:
    return isinstance(given, Mapping) and all(isinstance(key, str) for key in given)


def _combinations(
    set_: Mapping[str, Any], variants: list[Mapping[str, Any]], grid: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    values = [_values(key, given) for key, given in grid.items()]
    for chosen in itertools.product(*values):  # variants change fastest, so that early results compare arms
        for variant in variants:
            yield {**set_, **dict(zip(grid, chosen, strict=True)), **variant}


def _values(key: str, given: Any) -> Sequence[Any]:
    if key != "training.seed":
        return given if isinstance(given, list) else [given]
    for one in given if isinstance(given, list) else [given]:
        if not isinstance(one, int) or isinstance(one, bool):
            expected = "a number of seeds, as in 6, or a list of seeds, as in [0, 3]"
            raise RequestError(f"training.seed: {json.dumps(one, default=str)}: expected {expected}.")
    if isinstance(given, list):
        return given
    if given < 1:
        raise RequestError(f"training.seed: {given}: at least one seed is needed.")
    return range(min(given, LARGEST_COUNT))
