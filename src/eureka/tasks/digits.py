"""The two-step task on real handwritten digits: a grid of 8×8 pictures, indicators of class 1 or 2, targets of ten classes."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Generator

from eureka.data.images import load_digits
from eureka.runs import Level
from eureka.tasks.decision_rule import DecisionRule
from eureka.tasks.pictures import Album
from eureka.tasks.task import Batch, Split, Task

MEAN, SCALE = 0.3, 0.37  # of the pixels, rounded: inputs are centred and of unit size
HELD_OUT_EVERY = 4
INDICATOR_DIGITS = (1, 2)


class Digits(Task):
    """The same rule as `tiles`, on pictures. No picture is used for both training and validation; pairings are always fresh."""

    classes = 10

    def __init__(self, *, decisions: Annotated[int, Field(ge=2)] = 2, p_same: Annotated[float, Field(gt=0, lt=1)] = 0.5) -> None:
        self.rule = DecisionRule(decisions=decisions, indicator_classes=len(INDICATOR_DIGITS), target_classes=10, p_same=p_same)
        self.input_shape = (1, 16, 16 * self.rule.blocks)
        names = self.rule.tile_names()  # by blocks, which stand side by side
        self.tile_names = [[name for i, name in enumerate(names) if i % 4 // 2 == row] for row in (0, 1)]
        train, validation = load_digits().split(HELD_OUT_EVERY)
        self._albums = {
            split: Album(((torch.from_numpy(images.pixels) - MEAN) / SCALE)[:, None], torch.from_numpy(images.labels))
            for split, images in (("train", train), ("validation", validation))
        }

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        drawn = self.rule.draw(n, generator)
        shown = torch.tensor([*INDICATOR_DIGITS, *range(10)])[drawn.tiles]
        album = self._albums[split]
        chosen = album.choose(shown, generator).view(n, self.rule.blocks, 2, 2).permute(0, 2, 1, 3)  # (n, row, block, column)
        pictures = album.mosaic(chosen.reshape(n, 2, 2 * self.rule.blocks))
        return Batch(pictures.view(n, *self.input_shape), drawn.labels, drawn.steps)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """The chain's levels: what a reader of every digit could do."""
        return self.rule.levels(label_smoothing)
