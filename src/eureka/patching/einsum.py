"""Read an einsum as a product of matrices, or as a mixture of values."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def as_product(args: tuple[Any, ...]) -> tuple[Tensor, Tensor] | None:
    """The operands as (…, Q, D) and (…, D, K), if the einsum is the product of these; None otherwise.

    >>> import torch
    >>> q, k = torch.randn(5, 2, 3, 4), torch.randn(7, 2, 3, 4)
    >>> left, right = as_product(("ibnd,jbnd->bnij", q, k))
    >>> torch.allclose(left @ right, torch.einsum("ibnd,jbnd->bnij", q, k), atol=1e-5)
    True
    """
    if (found := _read(args)) is None or len(found[1]) < 3:
        return None
    pairs, output = found
    lead, row, column = output[:-2], output[-2], output[-1]
    summed = [letter for letter in pairs[0][0] if letter in pairs[1][0] and letter not in output]
    for (a, one), (b, other) in (pairs, pairs[::-1]):
        if len(summed) != 1 or row not in a or row in b or column not in b or column in a:
            continue
        if set(a) | set(b) != set(output) | set(summed):
            return None
        return _arranged(a, one, lead + row + summed[0]), _arranged(b, other, lead + summed[0] + column)
    return None


def values_in(args: tuple[Any, ...], weights: Tensor) -> Tensor | None:
    """The other operand as (…, K, D), if the einsum sums over the keys of (…, Q, K) weights; None otherwise.

    >>> import torch
    >>> weights, v = torch.rand(2, 3, 5, 7), torch.randn(7, 2, 3, 4)
    >>> values = values_in(("bnij,jbnd->ibnd", weights, v), weights)
    >>> torch.allclose((weights @ values).permute(2, 0, 1, 3), torch.einsum("bnij,jbnd->ibnd", weights, v), atol=1e-5)
    True
    """
    if (found := _read(args)) is None:
        return None
    pairs, output = found
    for (a, one), (b, other) in (pairs, pairs[::-1]):
        if one is not weights or len(a) < 3:
            continue
        lead, row, column = a[:-2], a[-2], a[-1]
        own = [letter for letter in b if letter not in a]
        if len(own) != 1 or column not in b or row in b or set(output) != {*lead, row, *own}:
            return None
        return _arranged(b, other, lead + column + own[0])
    return None


def _read(args: tuple[Any, ...]) -> tuple[list[tuple[str, Tensor]], str] | None:
    """Two operands with the names of their dimensions, and the names of the result; None for other einsums."""
    if not args or not isinstance(args[0], str) or "->" not in args[0] or "..." in args[0]:
        return None
    operands = list(args[1]) if len(args) == 2 and isinstance(args[1], (list, tuple)) else list(args[1:])
    inputs, _, output = args[0].replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(operands) != 2 or len(names) != 2 or any(len(set(part)) != len(part) for part in (*names, output)):
        return None
    return list(zip(names, operands, strict=True)), output


def _arranged(names: str, tensor: Tensor, order: str) -> Tensor:
    """The dimensions in this order; those that are missing have the size 1."""
    tensor = tensor.permute([names.index(letter) for letter in order if letter in names])
    for place, letter in enumerate(order):
        if letter not in names:
            tensor = tensor.unsqueeze(place)
    return tensor
