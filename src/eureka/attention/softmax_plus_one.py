"""softmax with a one in the denominator, so that a head may look at nothing."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, masked_softmax
from eureka.attention.fused import fused_attention, plain_beta
from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask, over_keys, visible_keys
from eureka.attention.operator import Operator


class SoftmaxPlusOne(Operator):
    """exp(a_j) / (1 + Σ exp(a)), a = q·k / √d: plain softmax with one more key of logit 0 and value 0, put in front.

    Rows sum to less than 1, and adding a constant to all logits of a row does change its weights.
    """

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        mask = checked(q, k, v, mask)
        beta = plain_beta(q)
        if isinstance(mask, Causal) and mask.offset == 0:
            # a query in front as well keeps the diagonal where the fused kernel wants it
            q, k, v = (_nothing_first(x) for x in (q, k, v))
            return fused_attention(q, k, v, beta, mask, dropout)[:, :, 1:]
        mask = _seeing_nothing(mask, q, k)
        return fused_attention(q, _nothing_first(k), _nothing_first(v), beta, mask, dropout)

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            logits = logits_of(q * plain_beta(q), _nothing_first(k))
            return masked_softmax(logits, _seeing_nothing(mask, q, k))[..., 1:]


def _nothing_first(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 1, 0))


def _seeing_nothing(mask: Mask, q: Tensor, k: Tensor) -> Mask:
    """The mask with one more key in front that everybody sees."""
    keys = k.shape[2]
    if isinstance(mask, NoMask):
        return mask
    if isinstance(mask, KeyPadding):
        return KeyPadding(F.pad(mask.visible, (1, 0), value=True))
    if isinstance(mask, Bias):
        return Bias(F.pad(over_keys(mask.bias, keys), (1, 0)))
    visible = visible_keys(mask, q.shape[2], keys, q.device)
    assert visible is not None
    return Dense(F.pad(over_keys(visible, keys), (1, 0), value=True))
