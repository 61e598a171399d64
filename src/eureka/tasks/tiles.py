"""Synthetic noisy tiles: the multi-step rule with nothing to see but prototypes and noise."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Generator

from eureka.runs import Level
from eureka.tasks.decision_rule import DecisionRule
from eureka.tasks.task import Batch, Split, Task


class Tiles(Task):
    """Each tile is a few tokens: the prototype of its class plus Gaussian noise. Every sample is fresh."""

    def __init__(
        self,
        *,
        decisions: Annotated[int, Field(ge=2)] = 2,
        indicator_classes: Annotated[int, Field(ge=2)] = 2,
        target_classes: Annotated[int, Field(ge=2)] = 10,
        p_same: Annotated[float, Field(gt=0, lt=1)] = 0.5,
        tokens: PositiveInt = 4,
        features: PositiveInt = 16,
        noise: NonNegativeFloat = 1.0,
        world: NonNegativeInt = 0,
    ) -> None:
        self.rule = DecisionRule(
            decisions=decisions, indicator_classes=indicator_classes, target_classes=target_classes, p_same=p_same
        )
        self.noise, self.classes = noise, target_classes
        self.input_shape = (4 * self.rule.blocks * tokens, features)
        self.token_names = [f"{tile} {part}" for tile in self.rule.tile_names() for part in range(1, tokens + 1)]
        looks = indicator_classes + target_classes
        self.prototypes = torch.randn(looks, tokens, features, generator=Generator().manual_seed(world))

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        drawn = self.rule.draw(n, generator)
        clean = self.prototypes[drawn.tiles].reshape(n, *self.input_shape)
        noise = torch.randn(clean.shape, generator=generator)
        return Batch(clean + self.noise * noise, drawn.labels, drawn.steps)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """The chain's levels: at the default noise two prototypes are eight standard deviations apart, so no tile is mistaken."""
        return self.rule.levels(label_smoothing)
