"""Sums over a row of numbers, modulo a prime: of a moving window, or of everything so far (Gopalani & Hu 2025)."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from eureka.runs import Level
from eureka.tasks.decision_rule import smoothed_entropy
from eureka.tasks.task import IGNORED, Batch, SequenceTask, Split

Count = Annotated[int, Field(ge=2)]


class Sums(SequenceTask):
    """The numbers x₁ … xₙ, a separator, then the sums y₁ … yₙ, each asked for when those before it are given.

    Tokens are x₁ … xₙ | y₁ … yₙ₋₁; at the separator and after it the label is the next sum.
    """

    def __init__(self, numbers: int, modulus: int) -> None:
        self.numbers, self.modulus = numbers, modulus
        self.separator, self.vocabulary, self.classes = modulus, modulus + 1, modulus
        self.input_shape = (2 * numbers,)

    @abstractmethod
    def sums(self, x: Tensor) -> Tensor:
        """(n, numbers) → (n, numbers), modulo nothing yet."""

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        x = torch.randint(self.modulus, (n, self.numbers), generator=generator)
        y = self.sums(x) % self.modulus
        inputs = torch.cat([x, torch.full((n, 1), self.separator), y[:, :-1]], dim=1)
        labels = torch.cat([torch.full_like(x, IGNORED), y], dim=1)
        return Batch(inputs, labels, {"number": x, "sum": y})

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """With numbers uniform, a sum of which one term is not read is uniform; only y₁ = x₁ is known without adding."""
        known = 1 / self.numbers
        certain = smoothed_entropy([1.0], self.classes, label_smoothing)
        loss = known * certain + (1 - known) * math.log(self.classes)
        return [Level("copying", loss, known + (1 - known) / self.classes), Level("adding", certain, 1.0)]


class WindowSum(Sums):
    """yᵢ = xᵢ₋ₖ₊₁ + … + xᵢ: which numbers to add is the intermediate step."""

    def __init__(self, *, numbers: Count = 16, modulus: Count = 17, window: Count = 2) -> None:
        super().__init__(numbers, modulus)
        self.window = window

    def sums(self, x: Tensor) -> Tensor:
        so_far = x.cumsum(dim=1)
        return so_far - F.pad(so_far, (self.window, 0))[:, : x.shape[1]]


class PrefixSum(Sums):
    """yᵢ = x₁ + … + xᵢ, which is yᵢ₋₁ + xᵢ."""

    def __init__(self, *, numbers: Count = 16, modulus: Count = 17) -> None:
        super().__init__(numbers, modulus)

    def sums(self, x: Tensor) -> Tensor:
        return x.cumsum(dim=1)
