"""Row variances under any pattern of visible keys: the logits, a block of query rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.fused import repeat_heads
from eureka.attention.mask import tensor_rows
from eureka.attention.rowwise import norm

BLOCK = 1 << 19
"""Logits in one block: 2 MB in single precision, so that a block is still in the cache when it is read again."""


class BlockVariance(Function):
    """var_i = Σ_j (a_ij - ā_i)² / n_i over the visible keys, a = q·k; the logits are made again for the gradient, never kept.

    Backward, with g the gradient of var: ∂a_ij = (2/n_i) g_i (a_ij - ā_i) where visible.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, visible: Tensor) -> Tensor:
        """q (B, H, Q, D), k (B, Hk, K, D), visible broadcastable to (B, H, Q, K) → (B, H, Q, 1)."""
        whole = repeat_heads(k, q.shape[1]).transpose(-2, -1)
        parts = []
        for rows in row_blocks(q, k.shape[2]):
            deviations, n = _deviations(q[:, :, rows] @ whole, tensor_rows(visible, rows))
            parts.append(norm(deviations).square() / n)
        return torch.cat(parts, dim=2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, visible = ctx.saved_tensors
        whole = repeat_heads(k, q.shape[1])
        parts, grad_k = [], torch.zeros_like(whole)
        for rows in row_blocks(q, k.shape[2]):
            deviations, n = _deviations(q[:, :, rows] @ whole.transpose(-2, -1), tensor_rows(visible, rows))
            grad = deviations * (2 * g[:, :, rows] / n)
            parts.append(grad @ whole)
            grad_k = grad_k + grad.transpose(-2, -1) @ q[:, :, rows]
        b, hk, keys, d = k.shape
        return torch.cat(parts, dim=2), grad_k.reshape(b, hk, -1, keys, d).sum(dim=2), None


def rows_in_block(q: Tensor, keys: int) -> int:
    """How many query rows of all samples and heads have about BLOCK logits together."""
    return max(1, BLOCK // max(1, q.shape[0] * q.shape[1] * keys))


def row_blocks(q: Tensor, keys: int) -> Iterator[slice]:
    """Slices of query rows of about BLOCK logits each."""
    size = rows_in_block(q, keys)
    return (slice(start, min(start + size, q.shape[2])) for start in range(0, q.shape[2], size))


def _deviations(logits: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
    """The logits minus their mean over the visible keys, 0 where hidden; and the number of those keys, at least 1."""
    w = visible.to(logits.dtype).expand_as(logits)
    n = w.sum(dim=-1, keepdim=True).clamp_min(1)
    mean = (logits * w).sum(dim=-1, keepdim=True) / n
    return (logits - mean) * w, n
