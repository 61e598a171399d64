"""What tasks over sequences share: an answer at many positions, and positions at which none is asked for."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from eureka.tasks.task import Batch, Task

IGNORED = -100
"""The label of a position at which nothing is asked."""


class SequenceTask(Task):
    """Tokens in, a class at every position; labels are (n, tokens), `IGNORED` where nothing is asked."""

    per_token = True

    def loss(self, outputs: Tensor, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """The mean over the positions that are asked for."""
        return F.cross_entropy(
            outputs.flatten(0, -2), batch.labels.flatten(), ignore_index=IGNORED, label_smoothing=label_smoothing
        )

    def accuracy(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The share of the positions that are asked for whose likeliest class is the label."""
        asked = batch.labels != IGNORED
        return (outputs.argmax(dim=-1) == batch.labels)[asked].float().mean()
