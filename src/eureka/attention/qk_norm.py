"""QK-norm: the cosine of q and k, times a learned gain."""

from __future__ import annotations

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily, per_head
from eureka.attention.rowwise import call
from eureka.attention.unit import Unit
from eureka.errors import RequestError


class QKNorm(SoftmaxFamily):
    """softmax(g_h·cos(q, k)): g is learned for each head and starts at `gain`.

    Its authors start at log₂(L² - L) for sequences of L tokens; 10 is that for 32.
    """

    def __init__(self, heads: int, *, gain: PositiveFloat = 10.0) -> None:
        super().__init__()
        if not gain > 0:
            raise RequestError(f"gain multiplies the cosines, so it must be above 0, not {gain}.")
        self.gain = nn.Parameter(torch.full((heads,), float(gain)))

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """g·q/|q| and k/|k|: the gain rides on the pass that divides."""
        return call(Unit, q, per_head(self.gain, q)), call(Unit, k, None)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return 1.0
