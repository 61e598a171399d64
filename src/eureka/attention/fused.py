"""softmax(β·q·k)·v by PyTorch's fused kernel: O(Q + K) memory."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Mask, NoMask, visible_keys
from eureka.attention.rowwise import laid_like

Beta = float | Tensor
"""An inverse temperature: one number, or a tensor broadcastable to (B, H, Q, 1)."""


def fused_attention(q: Tensor, k: Tensor, v: Tensor, beta: Beta, mask: Mask, dropout: float = 0.0) -> Tensor:
    """softmax(β·q·k)·v. A number costs nothing; a tensor costs one pass over q, in the wider type and rounded once."""
    if isinstance(beta, Tensor):
        q, beta = (q * laid_like(beta, q)).to(k.dtype), 1.0
    return F.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=_mask_tensor(q, k, mask),
        dropout_p=dropout,
        is_causal=isinstance(mask, Causal) and mask.offset == 0,
        scale=beta,
        enable_gqa=bool(q.shape[1] != k.shape[1]),
    )


def _mask_tensor(q: Tensor, k: Tensor, mask: Mask) -> Tensor | None:
    """What SDPA takes; causal attention needs a tensor only when its diagonal is shifted."""
    if isinstance(mask, NoMask) or (isinstance(mask, Causal) and mask.offset == 0):
        return None
    if isinstance(mask, Bias):
        return mask.bias.to(q.dtype)
    return visible_keys(mask, q.shape[-2], k.shape[-2], q.device)


def plain_beta(q: Tensor) -> float:
    """1/√d: the inverse temperature of plain softmax, to the last bit that of SDPA."""
    return 1.0 / math.sqrt(q.shape[-1])


def repeat_heads(k: Tensor, heads: int) -> Tensor:
    """Grouped heads made whole: (B, Hk, K, D) → (B, H, K, D)."""
    return k if k.shape[1] == heads else k.repeat_interleave(heads // k.shape[1], dim=1)
