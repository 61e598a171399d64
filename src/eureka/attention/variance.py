"""The variance of each row of q·k over its visible keys, without the Q×K matrix.

    var_i = mean_j (q_i·k_j - mean_j q_i·k_j)² = q_iᵀ C_i q_i,   C_i the covariance of the keys that row i sees

The keys are centred before anything is squared: E[a²] - E[a]² would cancel. Gradients are in closed form, once differentiable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.explicit import full_precision, wide
from eureka.attention.fused import repeat_heads
from eureka.attention.mask import Causal, KeyPadding, Mask, NoMask, tensor_rows, visible_keys
from eureka.attention.opaque import opaque
from eureka.attention.rowwise import call, dot, keep_for_backward, norm
from eureka.attention.variance_causal import CausalVariance


def row_variance(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """(B, H, Q, 1), in at least single precision; 0 for a row that sees one key or none.

    No mask and key padding share one covariance per head; causal rows have prefix covariances; any other pattern goes through
    the logits in blocks of rows. A bias counts only by what it hides.
    """
    with full_precision(q):
        q, k = wide(q), wide(k)
        (b, h, queries, d), (hk, keys) = q.shape, k.shape[1:3]
        if isinstance(mask, Causal) and not torch._C._are_functorch_transforms_active():
            rows = q.reshape(b, hk, h // hk, queries, d)
            causal = causal_variance if torch.compiler.is_compiling() else partial(call, CausalVariance)
            return causal(rows, k, mask.offset).reshape(b, h, queries, 1)
        if isinstance(mask, (NoMask, KeyPadding)):
            rows = q.reshape(b, hk, h // hk * queries, d)
            visible = mask.visible[:, None, :, None] if isinstance(mask, KeyPadding) else None
            return call(PooledVariance, rows, k, visible).reshape(b, h, queries, 1)
        visible = visible_keys(mask, queries, keys, q.device)
        return block_variance(q, k, visible) if torch.compiler.is_compiling() else call(BlockVariance, q, k, visible)


class PooledVariance(Function):
    """var_i = q_iᵀ C q_i with C = Σ_j (k_j - k̄)(k_j - k̄)ᵀ / n over the visible keys.

    Backward, with g the gradient of var: ∂q_i = 2 g_i C q_i and ∂k_j = (2/n) Σ_i g_i q_i q_iᵀ (k_j - k̄); the mean k̄ needs no term
    of its own because the centred keys sum to zero.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, visible: Tensor | None) -> tuple[Tensor, ...]:
        """q (B, Hk, R, D), k (B, Hk, K, D), visible (B, 1, K, 1) → (B, Hk, R, 1), and what backward needs."""
        centred, n = centre(k, visible)
        cq = q @ (centred.transpose(-2, -1) @ centred / n)
        return dot(cq, q), centred, cq, n

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        keep_for_backward(ctx, output[1:], inputs[0])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        centred, cq, n, q = ctx.saved_tensors
        g = 2 * g
        return cq * g, centred @ (q.transpose(-2, -1) @ (q * g) / n), None


def centre(k: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    """The keys minus the mean of the visible ones, 0 where hidden; and how many are visible (at least 1)."""
    if visible is None:
        return k - k.mean(dim=-2, keepdim=True), k.new_full((), k.shape[-2])
    n = visible.sum(dim=-2, keepdim=True).clamp_min(1).to(k.dtype)
    mean = (k * visible).sum(dim=-2, keepdim=True) / n
    return (k - mean) * visible, n


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


causal_variance = opaque("causal_variance", CausalVariance, "int")
block_variance = opaque("block_variance", BlockVariance, "Tensor")
"""What compiled code calls in their place."""
