"""Row variances when all queries of a sample see the same keys: one covariance per head."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.rowwise import dot, keep_for_backward


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
        return k - k.mean(dim=-2, keepdim=True), k.new_tensor(float(k.shape[-2]))
    n = visible.sum(dim=-2, keepdim=True).clamp_min(1).to(k.dtype)
    mean = (k * visible).sum(dim=-2, keepdim=True) / n
    return (k - mean) * visible, n
