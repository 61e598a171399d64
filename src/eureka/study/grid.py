"""A study: a grid of configs around one, and the folder where their runs are."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.runs import RunFolder, make_folder


@dataclass(frozen=True)
class Study:
    """Configs and a folder with one run folder for each; the same config always gets the same folder."""

    folder: Path
    configs: Sequence[RunConfig]

    @classmethod
    def over(cls, base: RunConfig, grid: Mapping[str, Sequence[Any]], folder: Path) -> Study:
        """Every combination of the values given for each key; the key named last changes fastest."""
        return cls.of(base, (dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())), folder)

    @classmethod
    def of(cls, base: RunConfig, changes: Iterable[Mapping[str, Any]], folder: Path) -> Study:
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
        return cls(folder, list(configs.values()))

    def prepare(self) -> list[RunFolder]:
        """Lay out the run folders, so that the whole study can be seen before its first run has begun."""
        make_folder(self.folder)
        return [self._prepare(config) for config in self.configs]

    def _prepare(self, config: RunConfig) -> RunFolder:
        run = RunFolder(self.folder / run_name(config))
        run.create()
        if run.config() is None:
            run.write("config.json", config.to_json())
        return run


def run_name(config: RunConfig) -> str:
    """Readable, and unique for the config: ``softmax-lr0.0003-seed0-1f2e3d4c5b6a``."""
    training = config.training
    return f"{config.attention.name}-lr{training.lr:g}-seed{training.seed}-{config.digest()}"
