"""What a study says, and no more: rows of a table from run folders. No torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from eureka.runs import Record, RunFolder
from eureka.study.settings import INDIFFERENT


@dataclass(frozen=True)
class Row:
    """One setting over its seeds. Lists are in the order of the seeds; a run that has not ended has no entry."""

    fix: str
    lr: float
    settings: dict[str, Any]
    """the other settings in which the rows of this table differ"""
    seeds: list[int]
    eureka_ratio: float
    eureka_ratio_interval: tuple[float, float]
    eureka_steps: list[int | None]
    median_eureka_step: float | None
    final_accuracy: list[float | None]
    median_final_accuracy: float | None

    def as_json(self) -> Record:
        return asdict(self)


@dataclass(frozen=True)
class Ended:
    """A run that has ended, with what the table needs."""

    folder: RunFolder
    config: Record
    result: Record

    @property
    def seed(self) -> int:
        seed: int = self.config["training"]["seed"]
        return seed


def ended_runs(folders: Iterable[RunFolder]) -> list[Ended]:
    """The runs of a study that have a result."""
    found = []
    for folder in folders:
        config, result = folder.config(), folder.result()
        if config is not None and result is not None:
            found.append(Ended(folder, config, result))
    return found


def summarise(folders: Iterable[RunFolder]) -> list[Row]:
    """One row for each setting: the runs that differ in nothing but the seed."""
    runs = ended_runs(folders)
    differing = differing_keys([run.config for run in runs])
    groups: dict[str, list[Ended]] = defaultdict(list)
    for run in runs:
        groups[repr(sorted(without_seed(run.config).items()))].append(run)
    rows = [_row(sorted(group, key=lambda run: run.seed), differing) for group in groups.values()]
    return sorted(rows, key=lambda row: (row.fix != "softmax", row.fix, row.lr, repr(row.settings)))  # the baseline first


def _row(runs: Sequence[Ended], differing: Sequence[str]) -> Row:
    config = flatten(runs[0].config)
    steps = [run.result["eureka_step"] for run in runs]
    accuracies = [run.result["final_accuracy"] for run in runs]
    successes = sum(step is not None for step in steps)
    return Row(
        fix=config["attention.name"],
        lr=config["training.lr"],
        settings={key: config.get(key) for key in differing},
        seeds=[run.seed for run in runs],
        eureka_ratio=successes / len(runs),
        eureka_ratio_interval=clopper_pearson(successes, len(runs)),
        eureka_steps=steps,
        median_eureka_step=censored_median(steps),
        final_accuracy=accuracies,
        median_final_accuracy=_median([a for a in accuracies if a is not None]),
    )


def flatten(config: Record) -> Record:
    """``{"training": {"lr": 1}}`` → ``{"training.lr": 1}``."""
    return {f"{part}.{key}": value for part, values in config.items() for key, value in values.items()}


def without_seed(config: Record) -> Record:
    return {key: value for key, value in flatten(config).items() if key != "training.seed" and key not in INDIFFERENT}


def differing_keys(configs: Sequence[Record]) -> list[str]:
    """The settings, besides fix, learning rate and seed, in which configs of one fix differ."""
    by_fix: dict[str, list[Record]] = defaultdict(list)
    for config in map(flatten, configs):
        by_fix[config["attention.name"]].append(config)
    own = {"attention.name", "training.lr", "training.seed", *INDIFFERENT}
    keys: set[str] = set()
    for group in by_fix.values():
        everything = {key for config in group for key in config} - own
        keys |= {key for key in everything if len({repr(config.get(key)) for config in group}) > 1}
    return sorted(keys)


def censored_median(steps: Sequence[int | None]) -> float | None:
    """The median time when None means "not within the run": known only if more than half of the runs had it.

    >>> censored_median([500, None, 700]), censored_median([500, None])
    (700.0, None)
    """
    median = _median([math.inf if step is None else float(step) for step in steps])
    return None if median is None or math.isinf(median) else median


def _median(values: Sequence[float]) -> float | None:
    if not values:
        return None
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def clopper_pearson(successes: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a proportion: quantiles of Beta(k, n - k + 1) and Beta(k + 1, n - k).

    >>> low, high = clopper_pearson(3, 3)
    >>> round(low, 3), high
    (0.292, 1.0)
    """
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = float(betaincinv(successes, n - successes + 1, tail)) if successes else 0.0
    high = float(betaincinv(successes + 1, n - successes, 1 - tail)) if successes < n else 1.0
    return low, high
