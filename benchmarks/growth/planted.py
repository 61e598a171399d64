"""Study folders as runs leave them, without training: for what reads them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from eureka.config import RunConfig
from eureka.recipes import recipe
from eureka.runs import Level, Metrics, Outcome, RunFolder
from eureka.study.plan import Study

EVERY, LINES = 25, 60
"""Steps between two lines, and the lines of a run of the recipe ``tiles``."""
LEVELS = [Level("the last step", 1.5, 0.55), Level("all steps", 0.05, 1.0)]


def study_of(runs: int, place: Path) -> Study:
    """Two fixes at two rates, as many seeds as that takes."""
    grid = {
        "training.seed": range(max(1, runs // 4)),
        "training.lr": [1e-3, 3e-4],
        "attention.name": ["softmax", "norm_softmax"],
    }
    return Study.over(tiles(), grid, place, "tiles")


def tiles() -> RunConfig:
    return recipe("tiles")


def finish(folders: list[RunFolder], lines: int = LINES) -> None:
    """Write what an ended run has written: its log, its levels and its outcome."""
    log = "".join(f"{json.dumps(asdict(line))}\n" for line in _leap(lines))
    outcome = Outcome("finished", EVERY * lines, 10.0, 256 * EVERY * lines, EVERY * lines // 2, EVERY * lines // 2, (), 0.1, 0.98)
    task = json.dumps({"levels": [asdict(level) for level in LEVELS], "tokens": None})
    for folder in folders:
        folder.metrics_file.write_text(log)
        (folder.path / "task.json").write_text(task)
        (folder.path / "result.json").write_text(json.dumps(outcome.to_json()))


def _leap(lines: int) -> list[Metrics]:
    """A plateau, then the floor."""
    return [
        Metrics(EVERY * (i + 1), *((1.5, 0.55, 1.5, 0.55) if i < lines // 2 else (0.1, 0.98, 0.1, 0.98)), 1e-3)
        for i in range(lines)
    ]
