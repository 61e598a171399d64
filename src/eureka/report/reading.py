"""The runs of a report, read once, so that every part of the page speaks of the same state of the study."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from eureka.errors import RequestError
from eureka.runs import Record, RunFolder, find_runs
from eureka.study.statistics import flatten

NEEDED = ("task.name", "attention.name", "training.lr", "training.seed", "training.steps")
"""The keys without which a config.json is not that of a run."""


@dataclass(frozen=True)
class ReportRun:
    """What the page needs of a run."""

    folder: RunFolder
    parts: Record
    """the config as it is in the file"""
    config: Record
    """the config by the keys people type"""
    metrics: Sequence[Record]
    levels: Sequence[Record]
    result: Record | None
    environment: Record
    attention: Sequence[Record]
    tokens: Sequence[str]
    """what the tokens of a sample are called"""
    probes: Record | None
    """what `eureka probe` measured last"""

    @property
    def fix(self) -> str:
        return str(self.config["attention.name"])

    @property
    def lr(self) -> float:
        return float(self.config["training.lr"])

    @property
    def seed(self) -> int:
        return int(self.config["training.seed"])

    @property
    def leap(self) -> Record | None:
        """The Eureka-moment: its step and its onset."""
        result = self.result or {}
        return None if result.get("eureka_step") is None else {"step": result["eureka_step"], "onset": result.get("onset_step")}

    @property
    def state(self) -> str:
        """``finished``, ``stopped_early``, ``diverged``, ``unfinished`` or ``not begun``."""
        if self.result is not None:
            return str(self.result["status"])
        return "unfinished" if self.metrics else "not begun"


def read_runs(folders: Iterable[Path]) -> list[ReportRun]:
    """Every run in the folders, each once."""
    folders = list(folders)
    found = {run.path.resolve(): run for folder in folders for run in find_runs(folder)}
    runs = [run for run in map(_read, found.values()) if run is not None]
    if not runs:
        where = ", ".join(map(str, folders)) or "no folder"
        raise RequestError(f"no runs found in {where}; give a folder that `eureka compare` or `eureka run` has written.")
    return runs


def _read(folder: RunFolder) -> ReportRun | None:
    # the result first: a run that ends while it is read is then unfinished with one line more, never ended with one less
    result, parts = folder.result(), folder.config()
    if parts is None or not _is_run(parts):
        return None
    return ReportRun(
        folder=folder,
        parts=parts,
        config=flatten(parts),
        metrics=folder.metrics(),
        levels=folder.levels(),
        result=result,
        environment=folder.environment() or {},
        attention=folder.attention(),
        tokens=folder.tokens(),
        probes=folder.probes(),
    )


def _is_run(config: Record) -> bool:
    """Whether this is the config of a run and not somebody else's, such as that of a model saved beside the runs."""
    return all(isinstance(part, dict) for part in config.values()) and all(key in flatten(config) for key in NEEDED)
