from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eureka.config import RunConfig
from eureka.runs import Outcome, Run, RunFolder, StoredConfig

MakeRun = Callable[..., Run]


@pytest.fixture
def make_run(tiny: RunConfig) -> MakeRun:
    """A run with some settings, which ended with a Eureka-moment at `step`, or without one; nothing is on disk."""
    flat = StoredConfig(tiny.but({"training.steps": 1000}).to_json()).flat

    def make(changes: dict[str, Any], step: int | None = None, accuracy: float = 0.9, *, ended: bool = True) -> Run:
        parts: dict[str, dict[str, Any]] = {}
        for key, value in (flat | changes).items():
            part, _, name = key.partition(".")
            parts.setdefault(part, {})[name] = value
        if changes.get("attention.name", flat["attention.name"]) != flat["attention.name"]:
            parts["attention"] = {key.partition(".")[2]: value for key, value in changes.items() if key.startswith("attention.")}
        outcome = Outcome("finished", 1000, 1.0, 16_000, step, step, (), 0.1, accuracy)
        return Run(RunFolder(Path(str(sorted(changes.items())))), StoredConfig(parts), outcome if ended else None)

    return make
