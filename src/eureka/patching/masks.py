"""Convert the masks and scales of other people's models to those of the operators."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask, visible_keys

HIDDEN = -9_999.0
"""People hide a key by a bias of -inf, finfo.min, -1e9 or -1e4. A bias below this becomes -inf: statistics skip the key."""


def mask_of(mask: Tensor | None, causal: bool = False) -> Mask:
    """A mask as SDPA takes it: nothing, True where visible, or numbers to add."""
    if mask is None:
        return Causal() if causal else NoMask()
    if mask.dtype != torch.bool:
        return Bias(torch.where(mask > HIDDEN, mask, float("-inf")))
    if mask.dim() == 4 and mask.shape[1] == 1 and (mask.shape[2] == 1 or mask.stride(2) == 0):
        return KeyPadding(mask[:, 0, 0])  # Hugging Face expands a padding mask over the queries; the cheap statistics apply
    return Dense(mask)


def biased(mask: Mask, bias: Tensor, queries: int, keys: int) -> Bias:
    """A mask that hides the same keys and adds a bias to the logits of the others."""
    if isinstance(mask, Bias):
        return Bias(mask.bias + bias)
    visible = visible_keys(mask, queries, keys, bias.device)
    return Bias(bias if visible is None else torch.where(visible, bias, float("-inf")))


def rescaled(q: Tensor, scale: float | None) -> Tensor:
    """q in the scale of the operators, for which plain softmax is softmax(q·k/√d): T5, for one, uses softmax(q·k)."""
    root = float(q.shape[-1] ** 0.5)
    return q if scale is None or math.isclose(scale * root, 1.0, rel_tol=1e-12) else q * (scale * root)
