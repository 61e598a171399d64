"""Scalable softmax: logits multiplied by s·log n, so that attention does not flatten as the sequence grows."""

from __future__ import annotations

import math

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn

from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask, visible_counts
from eureka.attention.operator import SoftmaxFamily, per_head
from eureka.errors import RequestError


class SSMax(SoftmaxFamily):
    """β = s_h·log n / √d, n the number of keys the row sees; s is learned for each head and starts at `scale`."""

    def __init__(self, heads: int, *, scale: PositiveFloat = 0.43) -> None:
        super().__init__()
        if not scale > 0:
            raise RequestError(f"scale multiplies the logits, so it must be above 0, not {scale}.")
        self.scale = nn.Parameter(torch.full((heads,), float(scale)))

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        n = visible_counts(mask, q.shape[2], k.shape[2], q.device)
        size = math.log(n) if isinstance(n, int) else n.clamp_min(1).to(self.scale.dtype).log()
        return per_head(self.scale, q) * (size * plain_beta(q))
