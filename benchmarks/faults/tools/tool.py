"""What a tool is to the suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from benchmarks.faults.judge import Answer
from benchmarks.faults.setup import Plan, Setup, seeded
from benchmarks.faults.training import batches_of

WATCHED = 100


@dataclass(frozen=True)
class Tool:
    """`module` is what must be importable; `ask` makes the case of a plan and says what the tool finds."""

    name: str
    module: str
    ask: Callable[[Plan, int, Path], Answer]


def watched(setup: Setup, steps: int, seed: int, after_step: Callable[[int, Tensor], None]) -> None:
    """Train, and call back after every step with its number and its loss."""
    with seeded(seed):
        for step, batch in zip(range(steps), batches_of(setup), strict=False):
            loss = setup.train_step(batch)
            if setup.after is not None:
                setup.after(step + 1)
            after_step(step, loss)


def causes(*names: str) -> frozenset[str]:
    return frozenset(names)


def distinct(findings: list[Any]) -> tuple[frozenset[str], ...]:
    """Each finding once, in its first place: some tools report every layer."""
    return tuple(dict.fromkeys(findings))
