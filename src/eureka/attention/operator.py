"""The seam: every operator is called the same way, so that nothing else ever asks which one it is."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention.mask import Bias, Causal, Mask, NoMask, as_mask, visible_keys
from eureka.attention.registry import FIXES

Beta = float | Tensor
"""An inverse temperature: one number, or a tensor broadcastable to (B, H, Q, 1)."""


class Operator(nn.Module, ABC):
    """Attention: ``operator(q, k, v, mask, dropout)`` mixes the values; ``operator.weights(q, k, mask)`` shows how.

    q is (B, H, Q, D); k and v are (B, Hk, K, D) with Hk dividing H.
    """

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """The mixed values, (B, H, Q, D)."""

    @abstractmethod
    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """The explicit weights, (B, H, Q, K): for pictures, for small probes, and as the oracle of the tests."""

    def advance(self, step: int) -> None:
        """Told the training step before each step; operators with a schedule listen."""


class SoftmaxFamily(Operator):
    """softmax(β·q·k): whatever gives a per-row inverse temperature β is attention at the speed of the fused kernel."""

    @abstractmethod
    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Beta:
        """The inverse temperature of each row."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        mask = as_mask(mask)
        return fused_attention(q, k, v, self.beta(q, k, mask), mask, dropout)

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = as_mask(mask)
        k = repeat_heads(k, q.shape[1])
        logits = (q * self.beta(q, k, mask)) @ k.transpose(-2, -1)
        if isinstance(mask, Bias):
            logits = logits + mask.bias
        visible = visible_keys(mask, q.shape[-2], k.shape[-2], q.device)
        if visible is not None:
            logits = logits.masked_fill(~visible, -math.inf)
        return torch.nan_to_num(logits.softmax(dim=-1))  # a row that sees nothing: zeros


def fused_attention(q: Tensor, k: Tensor, v: Tensor, beta: Beta, mask: Mask, dropout: float = 0.0) -> Tensor:
    """softmax(β·q·k)·v in O(Q + K) memory."""
    if isinstance(beta, Tensor):
        q, beta = q * beta, 1.0
    causal = isinstance(mask, Causal) and mask.offset == 0
    attn_mask = None
    if not causal and not isinstance(mask, NoMask):
        attn_mask = mask.bias if isinstance(mask, Bias) else visible_keys(mask, q.shape[-2], k.shape[-2], q.device)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask, dropout_p=dropout, is_causal=causal, scale=beta, enable_gqa=q.shape[1] != k.shape[1]
    )


def repeat_heads(k: Tensor, heads: int) -> Tensor:
    """Grouped heads made whole: (B, Hk, K, D) → (B, H, K, D)."""
    return k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)


def make_operator(name: str, settings: Mapping[str, Any] | None = None, **context: Any) -> Operator:
    """An operator by name; `context` is what its constructor may ask for: `heads`, `head_dim`, `total_steps`."""
    operator = FIXES.build(name, settings, **context)
    assert isinstance(operator, Operator)
    return operator
