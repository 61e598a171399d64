"""Pictures sorted by class, drawn with replacement by tensor operations alone."""

from __future__ import annotations

import torch
from torch import Generator, Tensor


class Album:
    """A picture of whatever class is asked for."""

    def __init__(self, pictures: Tensor, labels: Tensor, classes: int = 10) -> None:
        order = labels.argsort(stable=True)
        self.pictures = pictures[order]
        self.counts = labels.bincount(minlength=classes)
        self.starts = self.counts.cumsum(0) - self.counts

    def draw(self, classes: Tensor, generator: Generator) -> Tensor:
        """A picture of each class asked for: (…,) → (…, *picture)."""
        counts = self.counts[classes]
        which = (torch.rand(classes.shape, generator=generator) * counts).long().clamp_max(counts - 1)
        chosen = self.pictures.index_select(0, (self.starts[classes] + which).flatten())  # far faster than pictures[…]
        return chosen.unflatten(0, classes.shape)  # type: ignore[no-untyped-call,no-any-return]
