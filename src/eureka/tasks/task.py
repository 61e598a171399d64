"""What every task tells about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Generator, Tensor

from eureka.runs import Level

Split = Literal["train", "validation"]
IGNORED = -100
"""The label of a position at which nothing is asked."""


@dataclass(frozen=True)
class Batch:
    """Samples, their labels, and the intermediate answers on the way from one to the other."""

    inputs: Tensor
    labels: Tensor
    steps: Mapping[str, Tensor]


@dataclass(frozen=True)
class Repeats:
    """What stands where in samples whose answer followed an earlier occurrence: what induction heads can find."""

    tokens: Tensor
    """(n, tokens) integers: two places that hold the same have the same number"""
    asked: Tensor
    """(n, tokens) boolean: the places whose answer can be found so"""


class Task(ABC):
    """A source of samples that knows where its plateaus must be."""

    input_shape: tuple[int, ...]
    """(tokens, features), (channels, height, width), or (tokens,) when they are numbers of a vocabulary."""
    classes: int
    """outputs of the model, for each sample or each token; 1 when a quantity is predicted"""
    vocabulary: int | None = None
    """how many different tokens there are, when inputs are tokens"""
    per_token: bool = False
    """the model answers at every token, not once for the sample"""
    token_names: Sequence[str] | None = None
    """what the tokens are called; None where the model makes them, or where they have no names"""
    tile_names: Sequence[Sequence[str]] | None = None
    """what is shown where in a picture, row by row, where that is always the same"""

    @abstractmethod
    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        """`n` fresh samples; the same generator state gives the same samples."""

    @abstractmethod
    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """The plateaus in the order in which they are left, the shortcut first, and last the floor: the task is solved."""

    def about(self) -> str:
        """What was read of the user's own data, in a sentence or two; empty where there is none."""
        return ""

    def as_text(self, inputs: Tensor, labels: Tensor) -> tuple[str, str] | None:
        """A sample as people read it, and what is asked in it; None where tokens are only numbers."""
        return None

    def repeats(self, batch: Batch) -> Repeats | None:
        """Which tokens of a batch are the same; None for a task in which an induction head has nothing to find."""
        return None

    def loss(self, outputs: Tensor, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """The mean loss that is trained on."""
        return F.cross_entropy(outputs, batch.labels, label_smoothing=label_smoothing)

    def accuracy(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The share of samples whose likeliest class is the label; a task without classes defines a score that grows up to 1."""
        return (outputs.argmax(dim=-1) == batch.labels).float().mean()

    def shortcut_loss(self, label_smoothing: float = 0.0) -> float:
        """The level of the first plateau: only the last step is learned."""
        return self.levels(label_smoothing)[0].loss

    @property
    def shortcut_accuracy(self) -> float:
        """The accuracy on the first plateau."""
        return self.levels()[0].accuracy

    def floor_loss(self, label_smoothing: float = 0.0) -> float:
        """The loss when the task is solved: 0 without label smoothing."""
        return self.levels(label_smoothing)[-1].loss


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
        return (outputs[asked].argmax(dim=-1) == batch.labels[asked]).float().mean()  # few are asked for: the others cost time
