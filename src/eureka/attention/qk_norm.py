"""QK-norm: the cosine of q and k, times a learned gain."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import PositiveFloat
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.explicit import wide
from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily, per_head
from eureka.attention.rowwise import call, dot, keep_for_backward, laid_like, norm, side_by_side
from eureka.errors import RequestError


class QKNorm(SoftmaxFamily):
    """softmax(g_h·cos(q, k)): g is learned for each head and starts at `gain`.

    Its authors start at log₂(L² - L) for sequences of L tokens; 10 is that for 32.
    """

    def __init__(self, heads: int, *, gain: PositiveFloat = 10.0) -> None:
        super().__init__()
        if not gain > 0:
            raise RequestError(f"gain multiplies the cosines, so it must be above 0, not {gain}.")
        self.gain = nn.Parameter(torch.full((heads,), float(gain)))

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """g·q/|q| and k/|k|: the gain rides on the pass that divides."""
        return call(Unit, q, per_head(self.gain, q)), call(Unit, k, None)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return 1.0


SHORTEST = 1e-6
"""A shorter vector is divided by this: it has no direction to speak of, and the zero vector stays zero."""


class Unit(Function):
    """y = g·x/|x| along the last dimension.

    Backward, with x̂ = x/|x| and h the gradient of y: ∂x = g·(h - x̂ (x̂·h))/|x| and ∂g = Σ x̂·h.

    Dividing rows by their length is what weight normalisation does, and PyTorch has a kernel for that on a processor: one pass
    each way where the formula takes several. It knows no shortest length, so with a row under it everything takes the formula.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor]:
        """x (B, H, N, D), gain (H, 1, 1) or None → (B, H, N, D), and the lengths for backward."""
        if has_kernel(x):
            rows, lengths = torch._weight_norm_interface(in_rows(x, x), gain_in_rows(gain, x), 0)
            if bool((lengths >= SHORTEST).all()):
                return from_rows(rows, x), from_rows(lengths, x)
        length = laid_like(norm(wide(x)), x)
        inverse = length.clamp_min(SHORTEST).reciprocal()
        return (x * (inverse if gain is None else inverse * gain)).to(x.dtype), length

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        keep_for_backward(ctx, output[1:], *inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if h is None:
            return None, None
        length, x, gain = ctx.saved_tensors
        if has_kernel(x) and bool((length >= SHORTEST).all()):
            h = h.clone() if h._is_zerotensor() else h  # zeros that have no memory
            kept = in_rows(h, x), in_rows(x, x), gain_in_rows(gain, x), in_rows(length, x)
            rows, of_gain = torch.ops.aten._weight_norm_interface_backward(*kept, 0)
            grad, along = from_rows(rows, x), from_rows(of_gain, x)
        else:
            inverse = length.clamp_min(SHORTEST).reciprocal()
            factor = inverse if gain is None else inverse * gain
            along = laid_like(dot(wide(h), wide(x)), x) * inverse  # at once: |x|⁻³ leaves single precision for long vectors
            # a vector under SHORTEST was divided by a constant: its length has no gradient
            pull = inverse * factor * (length > SHORTEST)
            grad = (wide(h) * factor).addcmul_(wide(x), along * pull, value=-1).to(x.dtype)
        return grad, None if gain is None else along.sum_to_size(gain.shape)


def has_kernel(x: Tensor) -> bool:
    """Whether the kernel takes x: plain numbers on a processor, at least one, not traced and not batched by a transform."""
    if torch.compiler.is_compiling() or torch._C._is_tracing() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    if torch._C._are_functorch_transforms_active() or type(x) is not Tensor or x._is_zerotensor():
        return False
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64) and x.dim() == 4 and x.numel() > 0


def in_rows(x: Tensor, like: Tensor) -> Tensor:
    """(B, H, N, ·) → (rows, ·), dense, in the memory order of `like`; without a copy where x has that order."""
    return (x.transpose(1, 2) if side_by_side(like) else x).reshape(-1, x.shape[-1]).contiguous()  # the kernel checks no strides


def from_rows(rows: Tensor, like: Tensor) -> Tensor:
    """The way back: (rows, ·) → (B, H, N, ·)."""
    b, h, n, _ = like.shape
    return rows.view(b, n, h, -1).transpose(1, 2) if side_by_side(like) else rows.view(b, h, n, -1)


def gain_in_rows(gain: Tensor | None, like: Tensor) -> Tensor:
    """(H, 1, 1), or None for a gain of 1 → (rows, 1)."""
    gains = like.new_ones(1) if gain is None else gain.to(like.dtype)
    return in_rows(gains.expand(*like.shape[:3], 1), like)
