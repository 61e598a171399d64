"""softmax(q·k / √d): what everybody uses."""

from __future__ import annotations

from torch import Tensor

from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily


class Softmax(SoftmaxFamily):
    """β = 1/√d."""

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return plain_beta(q)
