"""Train a setup for some steps, and hand it over as a case."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from benchmarks.faults.setup import Kind, Loss, Plan, Setup, Step, seeded


@dataclass(frozen=True)
class Case:
    """What a user hands over, with the true answer: the cause, and others that are equally right."""

    name: str
    cause: str
    kind: Kind
    model: nn.Module
    batches: Any
    loss: Loss | None
    optimizer: Optimizer
    step: Step | None = None
    log: list[float] | str | None = None
    also: tuple[str, ...] = ()

    @property
    def right(self) -> frozenset[str]:
        return frozenset((self.cause, *self.also))


def batches_of(setup: Setup) -> Iterator[Any]:
    """The batches, over and over."""
    return chain.from_iterable(repeat(setup.batches))


def train(setup: Setup, steps: int, seed: int = 0) -> list[float]:
    """The losses of so many steps."""
    losses: list[float] = []
    with seeded(seed):
        for batch in batches_of(setup):
            if len(losses) == steps:
                break
            losses.append(setup.train_step(batch).item())
            if setup.after is not None:
                setup.after(len(losses))
    return losses


def hand_over(plan: Plan, seed: int, folder: Path) -> Case:
    """The case after the plan's steps of training; a log on disk goes into `folder`."""
    setup = plan.setup(seed)
    losses = train(setup, plan.warm, seed)
    log: list[float] | str | None = losses if plan.log == "list" else None
    if plan.log == "csv":
        log = str(_write(losses, folder / (re.sub(r"\W+", "-", plan.name) + ".csv")))
    loss = None if setup.step is not None else setup.loss
    return Case(plan.name, plan.cause, plan.kind, setup.model, setup.batches, loss, setup.optimizer, setup.step, log, plan.also)


def _write(losses: list[float], path: Path) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("step", "loss"), *enumerate(losses, 1)])
    return path
