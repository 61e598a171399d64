"""NormSoftmax weights from explicit logits: fewer passes over the Q×K matrix than the formula and its automatic gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.rowwise import dot, norm
from eureka.attention.spread import Divisor


class NormWeights(Function):
    """p = softmax(β·a + bias), β from the variance of the row's visible logits a; 0 where hidden.

    With c = a - ā the centred logits (softmax does not see the shift) and h the gradient of β·a:
    ∂a = β·h + (2/n)·(dβ/dvar)·(h·c)·c, because both h and c sum to zero over the row.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, size: Tensor, divisor: Divisor, seen: Tensor | None, *rest: Tensor) -> tuple[Tensor, ...]:
        """a (B, H, Q, K), size (B, H, Q, 1), the fields of `Shown` or None → (B, H, Q, K), and what backward needs."""
        if seen is None:
            n = a.new_tensor(float(a.shape[-1]))
            c = a - a.mean(dim=-1, keepdim=True)
        else:
            n = rest[1]
            c = (a - (a * seen).sum(dim=-1, keepdim=True) / n).mul_(seen)
        beta, slope = divisor.beta_and_slope(norm(c).square() / n, size)
        p = (c * beta).softmax(dim=-1) if seen is None else torch.addcmul(rest[0], c, beta).softmax(dim=-1).mul_(rest[2])
        return p, c, beta, 2 * slope / n

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.inputs, ctx.added_shape = len(inputs), None if inputs[3] is None else inputs[4].shape
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * ctx.inputs
        if g is not None:
            p, c, beta, slope = ctx.saved_tensors
            h = torch._softmax_backward_data(g, p, -1, p.dtype)
            if ctx.added_shape is not None and ctx.needs_input_grad[4]:
                grads[4] = h.sum_to_size(ctx.added_shape)
            grads[0] = (h * beta).addcmul_(c, dot(h, c) * slope)
        return tuple(grads)
