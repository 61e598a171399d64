"""QK-LayerNorm: q and k normalised over the head dimension, each with learned gains."""

from __future__ import annotations

from torch import Tensor, nn

from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily


class QKLayerNorm(SoftmaxFamily):
    """softmax(LN(q)·LN(k) / √d): layer norms without bias, shared by the heads, as in ViT-22B."""

    def __init__(self, head_dim: int) -> None:
        super().__init__()
        self.norm_q = nn.LayerNorm(head_dim, bias=False)
        self.norm_k = nn.LayerNorm(head_dim, bias=False)

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        return self.norm_q(q), self.norm_k(k)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return plain_beta(q)
