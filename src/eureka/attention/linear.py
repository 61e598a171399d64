"""Linear attention: no softmax at all."""

from __future__ import annotations

from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, mix, shown
from eureka.attention.fused import plain_beta, repeat_heads
from eureka.attention.mask import KeyPadding, Mask, NoMask
from eureka.attention.operator import ExplicitOperator


class Linear(ExplicitOperator):
    """q·k / √d as the weight itself, 0 where hidden; rows sum to anything.

    Without a mask or with key padding the product is taken as q·(kᵀv), which costs N·D² and never builds the matrix.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        mask = checked(q, k, v, mask)
        if dropout > 0.0 or not isinstance(mask, (NoMask, KeyPadding)) or min(q.shape[2], k.shape[2]) < q.shape[3]:
            return mix(self.weights(q, k, mask), v, dropout)
        if isinstance(mask, KeyPadding):
            v = v * mask.visible[:, None, :, None]
        memory = k.transpose(-2, -1) @ v
        return (q * plain_beta(q)) @ repeat_heads(memory, q.shape[1])

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            logits = logits_of(q * plain_beta(q), k)
            rest = shown(logits, mask, lowest=0.0)
            return logits if rest is None else logits * rest.seen + rest.added
