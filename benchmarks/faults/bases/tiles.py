"""The recipe `tiles`: two steps of which softmax learns the second and waits for the first, and NormSoftmax does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.faults.data.scores import scorer
from benchmarks.faults.setup import Base, Draw, Setup
from eureka.config import RunConfig
from eureka.experiment import build
from eureka.recipes import recipe
from eureka.tasks.task import Task
from eureka.training.optimiser import make_optimiser

BATCHES, HELD_OUT = 1000, 512


class Stream:
    """Batches that are drawn when they are asked for, the same ones in every pass: from a fixed set this task is not learned."""

    def __init__(self, task: Task, size: int, seed: int) -> None:
        self.task, self.size, self.seed = task, size, seed

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(BATCHES):
            sample = self.task.sample(self.size, generator)
            yield sample.inputs, sample.labels


def tiles(draw: Draw, *, attention: str = "softmax", **_options: Any) -> Setup:
    """At the recipe's rate, which is one where softmax waits."""
    parts = recipe("tiles").to_json()
    parts["attention"] = {"name": attention}
    parts["training"]["seed"] = draw.random.randrange(100)
    config = RunConfig.from_json(parts)
    task, model = build(config)
    held_out = task.sample(HELD_OUT, draw.generator)

    def right(model: nn.Module) -> Tensor:
        answers: Tensor = model(held_out.inputs)
        return answers.argmax(-1) == held_out.labels

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    batches = Stream(task, config.training.batch_size, draw.random.randrange(2**31))
    return Setup(model, batches, loss, make_optimiser(model, config.training), scorer(right, task.shortcut_accuracy))


TILES = Base("tiles", "vit", tiles, 700)
