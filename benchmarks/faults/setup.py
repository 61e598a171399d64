"""A training run before its first step, and how one is made."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

Kind = Literal["gpt", "vit", "hand", "hf"]
Loss = Callable[[nn.Module, Any], Tensor]
Step = Callable[[nn.Module, Optimizer, Any], Tensor]
Score = Callable[[nn.Module], float]
T = TypeVar("T")


@dataclass(frozen=True)
class Setup:
    """Model, data and loop; the fault, if any, is in one of them.

    score    how much of the right question a model has learned, on held-out samples: 0 is a guess, 1 is all there is to learn
    after    called after every step with the number of steps so far: a scheduler
    """

    model: nn.Module
    batches: Iterable[Any]
    loss: Loss
    optimizer: Optimizer
    score: Score
    step: Step | None = None
    after: Callable[[int], None] | None = None

    def train_step(self, batch: Any) -> Tensor:
        """One step of this run, as its own loop makes it."""
        if self.step is not None:
            return self.step(self.model, self.optimizer, batch)
        self.optimizer.zero_grad()
        loss = self.loss(self.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()


class Draw:
    """What a seed decides: sizes, tables, samples."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(f"{seed} {name}")
        self.generator = torch.Generator().manual_seed(self.random.randrange(2**31))

    def pick(self, *options: T) -> T:
        return self.random.choice(options)

    def near(self, value: float, factor: float = 1.3) -> float:
        """A number within a factor of a value."""
        return float(value * factor ** self.random.uniform(-1.0, 1.0))


class Make(Protocol):
    """Makes a healthy run; options change how it is built."""

    def __call__(self, draw: Draw, **options: Any) -> Setup: ...


@dataclass(frozen=True)
class Base:
    """A healthy run that faults are planted in."""

    name: str
    kind: Kind
    make: Make
    steps: int = 120
    """Within so many steps it learns most of what there is."""


@dataclass(frozen=True)
class Plan:
    """A case to be made: the base, what is changed, and after how many steps it is handed over.

    build    options of the base: the fault is in how the model is built
    plant    the fault is put into the finished run
    also     further causes that are equally right
    warm     steps of training before the case is handed over
    steps    steps after which the run should have learned, if it could; those of the base unless given
    log      how the losses so far are handed over
    control  options of the run without the fault, where that is not the base itself
    """

    cause: str
    how: str
    base: Base
    plant: Callable[[Setup], Setup] = field(default=lambda setup: setup)
    build: dict[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    warm: int = 60
    log: Literal["list", "csv"] | None = None
    steps: int | None = None
    control: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.cause}: {self.how} ({self.base.name})"

    @property
    def kind(self) -> Kind:
        return self.base.kind

    @property
    def length(self) -> int:
        return self.steps or self.base.steps

    def setup(self, seed: int, healthy: bool = False) -> Setup:
        """The run before its first step; `healthy` leaves the fault out. Both start from the same weights and samples."""
        draw = Draw(seed, self.base.name)
        with seeded(draw.random.randrange(2**31)):
            if healthy:
                return self.base.make(draw, **self.control)
            return self.plant(self.base.make(draw, **self.build))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Weights and dropout are drawn from a seed; the caller's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
