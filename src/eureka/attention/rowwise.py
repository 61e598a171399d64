"""Small sums along the last dimension, and typed doors to what PyTorch leaves untyped."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Row by row, the dimension kept: (…, D), (…, D) → (…, 1)."""
    product: Tensor = torch.linalg.vecdot(x, y)
    return product.unsqueeze(-1)


def norm(x: Tensor) -> Tensor:
    """|x| row by row, the dimension kept, in one pass: (…, D) → (…, 1)."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length


def side_by_side(x: Tensor) -> bool:
    """Whether x (B, H, N, D) lies in memory as (B, N, H, D): models put the heads of a token side by side."""
    return x.dim() == 4 and x.stride(1) < x.stride(2)


def laid_like(rows: Tensor, x: Tensor) -> Tensor:
    """(B, H, N, 1) in the memory order of x (B, H, N, D): a product over two orders takes more than twice the time."""
    if rows.dim() == 4 and side_by_side(x):
        return rows.transpose(1, 2).contiguous().transpose(1, 2)
    return rows


def call(function: type[Function], *inputs: Any) -> Tensor:
    """The first output of ``function.apply(*inputs)``; the others are what its backward pass keeps."""
    plainly = torch.compiler.is_compiling() and not _learning(inputs)  # backward would be traced too, and fail without gradients
    output = function.forward(*inputs) if plainly else function.apply(*inputs)  # type: ignore[no-untyped-call]
    first: Tensor = output[0] if isinstance(output, tuple) else output
    return first


def _learning(inputs: tuple[Any, ...]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in inputs)


def keep_for_backward(ctx: Any, outputs: tuple[Tensor, ...], *inputs: Tensor | None) -> None:
    """Save some outputs, which then carry no gradient of their own, and some inputs.

    What forward computes and backward needs has to be an output: only so can PyTorch's function transforms (vmap, grad) follow.
    Gradients that do not exist come as None: zeros as large as these outputs would cost more than the work itself.
    """
    ctx.mark_non_differentiable(*outputs)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*outputs, *inputs)
