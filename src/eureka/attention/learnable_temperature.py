"""softmax(q·k / τ_h): a temperature for each head, learned."""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily, per_head
from eureka.attention.temperature import positive_temperature


class LearnableTemperature(SoftmaxFamily):
    """β = exp(-log τ_h); learned in log space, so that τ stays above 0. It starts at `temperature` (√d unless given)."""

    def __init__(self, heads: int, head_dim: int, *, temperature: PositiveFloat | None = None) -> None:
        super().__init__()
        start = math.sqrt(head_dim) if temperature is None else positive_temperature(temperature)
        self.log_temperature = nn.Parameter(torch.full((heads,), math.log(start)))

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        return per_head(self.log_temperature, q).neg().exp()
