"""Functions that compiled code calls and does not look into: loops over blocks would make a graph for each length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from eureka.attention.rowwise import call


def opaque(name: str, function: type[Function], third: str) -> Callable[[Tensor, Tensor, Any], Tensor]:
    """An operation of torch for a function of q (…, Q, D), k and a third argument of this type that gives (…, Q, 1).

    It is differentiable in q and k; its backward pass computes the function again.
    """

    def forward(q: Tensor, k: Tensor, rest: Any) -> Tensor:
        return call(function, q, k, rest).contiguous()

    def backward(g: Tensor, q: Tensor, k: Tensor, rest: Any) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            q, k = q.detach().requires_grad_(), k.detach().requires_grad_()
            grad_q, grad_k = torch.autograd.grad(call(function, q, k, rest), (q, k), g)
        return grad_q.contiguous(), grad_k.contiguous()

    made: Any = torch.library.custom_op(
        f"eureka::{name}", forward, mutates_args=(), schema=f"(Tensor q, Tensor k, {third} rest) -> Tensor"
    )
    back: Any = torch.library.custom_op(
        f"eureka::{name}_backward",
        backward,
        mutates_args=(),
        schema=f"(Tensor g, Tensor q, Tensor k, {third} rest) -> (Tensor, Tensor)",
    )
    made.register_fake(lambda q, k, rest: q.new_empty(*q.shape[:-1], 1))
    back.register_fake(lambda g, q, k, rest: (torch.empty_like(q).contiguous(), torch.empty_like(k).contiguous()))

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:  # noqa: ARG001 - torch passes it by this name
        q, k, rest = inputs
        ctx.is_tensor, ctx.rest = isinstance(rest, Tensor), None if isinstance(rest, Tensor) else rest
        ctx.save_for_backward(q, k, *([rest] if ctx.is_tensor else []))

    def gradients(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, *rest = ctx.saved_tensors
        grad_q, grad_k = back(g.contiguous(), q, k, rest[0] if ctx.is_tensor else ctx.rest)
        return grad_q, grad_k, None

    made.register_autograd(gradients, setup_context=keep)
    return made  # type: ignore[no-any-return]
