"""The recipe `tiles`: two steps of which softmax learns the second and waits for the first, and NormSoftmax does not."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from benchmarks.faults.data.scores import scorer
from benchmarks.faults.setup import Base, Draw, Setup
from eureka.config import RunConfig
from eureka.experiment import build
from eureka.recipes import recipe
from eureka.training.optimiser import make_optimiser

BATCHES, HELD_OUT = 200, 512


def tiles(draw: Draw, *, attention: str = "softmax", **_options: Any) -> Setup:
    """At the recipe's rate, which is one where softmax waits."""
    parts = recipe("tiles").to_json()
    parts["attention"] = {"name": attention}
    parts["training"]["seed"] = draw.random.randrange(100)
    config = RunConfig.from_json(parts)
    task, model = build(config)
    samples = [task.sample(config.training.batch_size, draw.generator) for _ in range(BATCHES)]
    held_out = task.sample(HELD_OUT, draw.generator)

    def right(model: nn.Module) -> Tensor:
        answers: Tensor = model(held_out.inputs)
        return answers.argmax(-1) == held_out.labels

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    batches = [(sample.inputs, sample.labels) for sample in samples]
    return Setup(model, batches, loss, make_optimiser(model, config.training), scorer(right, task.shortcut_accuracy))


TILES = Base("tiles", "vit", tiles, 900)
