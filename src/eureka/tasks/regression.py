"""In-context linear regression (Garg et al. 2022): pairs x, w·x as tokens in turn; asked for is w·x at every x."""

from __future__ import annotations

import torch
from pydantic import PositiveInt
from torch import Generator, Tensor

from eureka.runs import Level
from eureka.tasks.task import Batch, Split, Task


class Regression(Task):
    """x and w are standard normal in `dim` dimensions, w fresh in every sample.

    Tokens are x₁, y₁, x₂, y₂, …; y stands in the first feature of its token. The loss is the mean squared error over all x.
    """

    classes = 1
    per_token = True

    def __init__(self, *, dim: PositiveInt = 5, pairs: PositiveInt = 16) -> None:
        self.dim, self.pairs = dim, pairs
        self.input_shape = (2 * pairs, dim)

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        x = torch.randn(n, self.pairs, self.dim, generator=generator)
        w = torch.randn(n, self.dim, 1, generator=generator)
        y = (x @ w)[..., 0]
        tokens = torch.zeros(n, self.pairs, 2, self.dim)
        tokens[:, :, 0] = x
        tokens[:, :, 1, 0] = y
        return Batch(tokens.reshape(n, *self.input_shape), y, {"weights": w[..., 0]})

    def loss(self, outputs: Tensor, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        """The mean squared error where an x stands; there are no labels to smooth."""
        return (outputs[:, ::2, 0] - batch.labels).square().mean()

    def accuracy(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The share of the variance that is explained: 1 - loss / dim, which is 0 for the answer 0."""
        return 1 - self.loss(outputs, batch) / self.dim

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """Answering 0 costs E(w·x)² = dim. After i pairs least squares of least norm knows w in i of its directions.

        E error² = dim - i while i < dim, then 0: it is the posterior mean, so no predictor is better.
        """
        floor = sum(max(self.dim - i, 0) for i in range(self.pairs)) / self.pairs
        return [Level("the mean", float(self.dim), 0.0), Level("least squares", floor, 1 - floor / self.dim)]
