"""QK-norm: the cosine of q and k, times a learned gain."""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.explicit import wide
from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily, per_head
from eureka.attention.rowwise import call, dot, keep_for_backward, laid_like, norm
from eureka.attention.slabs import slabs, worth_slabs
from eureka.errors import RequestError

SHORTEST = 1e-6
"""A shorter vector is divided by this: it has no direction to speak of, and the zero vector stays zero."""


class QKNorm(SoftmaxFamily):
    """softmax(g_h·cos(q, k)): g is learned for each head and starts at `gain`.

    Its authors start at log₂(L² - L) for sequences of L tokens; 10 is that for 32.
    """

    def __init__(self, heads: int, *, gain: Annotated[float, Field(gt=0)] = 10.0) -> None:
        super().__init__()
        if not gain > 0:
            raise RequestError(f"gain multiplies the cosines, so it must be above 0, not {gain}.")
        self.gain = nn.Parameter(torch.full((heads,), float(gain)))

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """g·q/|q| and k/|k|: the gain rides on the pass that divides."""
        return call(Unit, q, per_head(self.gain, q)), call(Unit, k, None)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return 1.0


class Unit(Function):
    """y = g·x/|x| along the last dimension, in as few passes as it takes.

    Backward, with x̂ = x/|x| and h the gradient of y: ∂x = g·(h - x̂ (x̂·h))/|x| and ∂g = Σ x̂·h.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, gain: Tensor | None) -> tuple[Tensor, Tensor]:
        """x (B, H, N, D), gain (H, 1, 1) or None → (B, H, N, D), and the inverse lengths for backward."""
        if worth_slabs(x):
            y, inverse = torch.empty_like(x), laid_like(x.new_empty(*x.shape[:3], 1), x)
            for part, scaled, one in slabs(x, y, inverse):
                norm(part, out=one).clamp_min_(SHORTEST).reciprocal_()
                torch.mul(part, one if gain is None else one * gain, out=scaled)
            return y, inverse
        inverse = laid_like(norm(wide(x)), x).clamp_min(SHORTEST).reciprocal()
        return (x * (inverse if gain is None else inverse * gain)).to(x.dtype), inverse

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        keep_for_backward(ctx, output[1:], *inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, h: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if h is None:
            return None, None
        inverse, x, gain = ctx.saved_tensors
        factor = inverse if gain is None else inverse * gain
        # a vector under SHORTEST was divided by a constant: its length has no gradient
        pull = inverse * factor * (inverse < 1 / SHORTEST)
        if not worth_slabs(x):
            along = laid_like(dot(wide(h), wide(x)), x) * inverse  # at once: |x|⁻³ leaves single precision for long vectors
            grad = (wide(h) * factor).addcmul_(wide(x), along * pull, value=-1).to(x.dtype)
        else:
            grad, along = torch.empty_like(x), torch.empty_like(inverse)
            for part, slope, one, by, drawn, into, found in slabs(x, h, inverse, factor, pull, grad, along):
                torch.sum(torch.mul(slope, part, out=into), dim=-1, keepdim=True, out=found).mul_(one)
                torch.mul(slope, by, out=into).addcmul_(part, found * drawn, value=-1)
        return grad, None if gain is None else along.sum_to_size(gain.shape)
