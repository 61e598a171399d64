"""softmax(q·k / √d): what everybody uses."""

from __future__ import annotations

from torch import Tensor

from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily


class Softmax(SoftmaxFamily):
    """β = 1/√d."""

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return float(q.shape[-1] ** -0.5)
