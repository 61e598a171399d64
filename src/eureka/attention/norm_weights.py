"""NormSoftmax weights from explicit logits: fewer passes over the Q×K matrix than the formula and its automatic gradient."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.rowwise import dot
from eureka.attention.spread import Divisor


class NormWeights(Function):
    """p = softmax(β·a + bias), β from the variance of the row's visible logits a.

    With c = a - ā the centred logits (softmax does not see the shift) and h the gradient of β·a:
    ∂a = β·h + (2/n)·(dβ/dvar)·(h·c)·c, because both h and c sum to zero over the row.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, size: Tensor, visible: Tensor | None, bias: Tensor | None, divisor: Divisor) -> tuple[Tensor, ...]:
        """a (B, H, Q, K); size (B, H, Q, 1), visible and bias broadcastable to a → (B, H, Q, K), and what backward needs."""
        if visible is None:
            n: Tensor | float = float(a.shape[-1])
            c = a - a.mean(dim=-1, keepdim=True)
        else:
            seen = visible.to(a.dtype).expand_as(a)
            n = seen.sum(dim=-1, keepdim=True).clamp_min(1)
            c = (a - (a * seen).sum(dim=-1, keepdim=True) / n) * seen
        beta, slope = divisor.beta_and_slope(dot(c, c) / n, size)
        z = c * beta if bias is None else c * beta + bias
        p = _softmax(z, visible)
        return p, c, beta, 2 * slope / n

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.bias_shape = None if inputs[3] is None else inputs[3].shape
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None, None, None
        p, c, beta, slope = ctx.saved_tensors
        h = torch._softmax_backward_data(g, p, -1, p.dtype)
        pull = dot(h, c) * slope
        grad_bias = h.sum_to_size(ctx.bias_shape) if ctx.needs_input_grad[3] else None
        return torch.addcmul(h * beta, c, pull), None, None, grad_bias, None


def _softmax(z: Tensor, visible: Tensor | None) -> Tensor:
    """softmax over the visible keys; a row that sees nothing: zeros."""
    if visible is None:
        return z.softmax(dim=-1)
    return z.masked_fill(~visible, -math.inf).softmax(dim=-1).masked_fill(~visible, 0.0)
