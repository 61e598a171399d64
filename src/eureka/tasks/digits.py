"""The two-step task on real handwritten digits: a grid of 8×8 pictures, indicators of class 1 or 2, targets of ten classes."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Generator, Tensor

from eureka.data import Images, load_digits
from eureka.tasks.chain import Chain
from eureka.tasks.task import Batch, Level, Split, Task

MEAN, SCALE = 0.3, 0.37  # of the pixels, rounded: inputs are centred and of unit size
HELD_OUT_EVERY = 4
INDICATOR_DIGITS = (1, 2)


class Digits(Task):
    """The same rule as `tiles`, on pictures. No picture is used for both training and validation; pairings are always fresh."""

    classes = 10

    def __init__(self, *, decisions: Annotated[int, Field(ge=2)] = 2, p_same: Annotated[float, Field(gt=0, lt=1)] = 0.5) -> None:
        self.chain = Chain(decisions=decisions, indicator_classes=len(INDICATOR_DIGITS), target_classes=10, p_same=p_same)
        self.input_shape = (1, 16, 16 * self.chain.blocks)
        train, validation = load_digits().split(HELD_OUT_EVERY)
        self._albums = {"train": Album(train), "validation": Album(validation)}

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        drawn = self.chain.draw(n, generator)
        shown = torch.tensor([*INDICATOR_DIGITS, *range(10)])[drawn.tiles]
        tiles = self._albums[split].draw(shown, generator)  # (n, blocks, 4, 8, 8)
        rows = tiles.reshape(n, self.chain.blocks, 2, 2, 8, 8).permute(0, 2, 4, 1, 3, 5)  # (n, row, y, block, column, x)
        return Batch(rows.reshape(n, *self.input_shape), drawn.labels, drawn.steps)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """The chain's levels: what a reader of every digit could do."""
        return self.chain.levels(label_smoothing)


class Album:
    """Pictures sorted by class, drawn with replacement by tensor operations alone."""

    def __init__(self, images: Images) -> None:
        labels = torch.from_numpy(images.labels)
        order = labels.argsort(stable=True)
        self.pictures = ((torch.from_numpy(images.pixels) - MEAN) / SCALE)[order]
        self.counts = labels.bincount(minlength=10)
        self.starts = self.counts.cumsum(0) - self.counts

    def draw(self, classes: Tensor, generator: Generator) -> Tensor:
        """A picture of each class asked for: (…,) → (…, 8, 8)."""
        counts = self.counts[classes]
        which = (torch.rand(classes.shape, generator=generator) * counts).long().clamp_max(counts - 1)
        return self.pictures[self.starts[classes] + which]
