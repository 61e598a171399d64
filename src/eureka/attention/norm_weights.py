"""The weights of NormSoftmax from whole logits, and the pieces that its blocks share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.divisor import Divisor
from eureka.attention.explicit import Shown
from eureka.attention.rowwise import norm


def centred(a: Tensor, shown: Shown | None) -> Tensor:
    """The logits minus the mean of the visible ones, 0 where hidden: softmax does not see the shift. They are overwritten."""
    if shown is None:
        return a.sub_(a.mean(dim=-1, keepdim=True))
    return a.sub_((a * shown.seen).sum(dim=-1, keepdim=True) / shown.keys).mul_(shown.seen)


def softened(c: Tensor, beta: Tensor, shown: Shown | None, desk: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """p = softmax(β·c + bias), 0 where hidden; `desk` and `out` are room for what is scaled and for what comes of it."""
    if shown is None:
        return torch.softmax(torch.mul(c, beta, out=desk), -1, out=out)
    return torch.softmax(torch.addcmul(shown.added, c, beta, out=desk), -1, out=out).mul_(shown.alive)


def logit_gradient(h: Tensor, c: Tensor, beta: Tensor, slope: Tensor, desk: Tensor | None = None) -> Tensor:
    """The gradient of the logits from h, that of β·c, which is overwritten.

    It is β·h + slope·(h·c)·c with slope = (2/n)·dβ/dvar, because both h and c sum to zero over the row.
    """
    along = torch.mul(h, c, out=desk).sum(dim=-1, keepdim=True) * slope
    return h.mul_(beta).addcmul_(c, along)


class NormWeights(Function):
    """p = softmax(β·a + bias), β from the variance of the row's visible logits a; 0 where hidden."""

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, floor: Tensor, divisor: Divisor, *rest: Tensor | None) -> tuple[Tensor, ...]:
        """a (B, H, Q, K), floor (B, H, Q, 1), the fields of `Shown` or None → (B, H, Q, K), and what backward needs."""
        shown = None if rest[0] is None else Shown(*rest)  # type: ignore[arg-type]
        n = a.new_full((), a.shape[-1]) if shown is None else shown.keys
        c = centred(a.clone(), shown)
        variance = norm(c).square() / n
        beta = divisor.beta(variance, floor)
        return softened(c, beta, shown), c, beta, 2 * divisor.slope(beta, variance, floor) / n

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
                grads[4] = h.clone().sum_to_size(ctx.added_shape)  # of the same shape it would be h itself, which is overwritten
            grads[0] = logit_gradient(h, c, beta, slope)
        return tuple(grads)
