"""The functions of torch of which attention is written out, and how their arguments are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

SOFTMAX = {torch.softmax, Tensor.softmax, F.softmax}
BMM = {torch.bmm, Tensor.bmm}
BADDBMM = {torch.baddbmm, Tensor.baddbmm, Tensor.baddbmm_}
MULTIPLY = {torch.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, torch.einsum, *BMM, *BADDBMM}
DIVIDING = {"div", "div_", "truediv", "itruediv", "true_divide", "divide"}
SCALING = {"mul", "mul_", "rmul", "imul", "multiply", *DIVIDING}
SAME_VALUES = {
    *("view", "reshape", "unsqueeze", "squeeze", "flatten", "unflatten", "view_as", "contiguous", "clone"),
    *("float", "double", "half", "bfloat16", "to", "type", "type_as"),
}
"""Functions that keep the values and their order."""
ADDING = {
    *("add", "add_", "radd", "iadd", "sub", "sub_", "isub", "masked_fill", "masked_fill_", "where", "setitem"),
    *("maximum", "max", "clamp", "clamp_", "clip", "clamp_min", "nan_to_num"),
}
"""Functions that add something to some of the values, or hide some of them."""
THINNING = {"dropout", "nan_to_num"}
"""Functions that leave weights what they are in eval mode, on their way to the values."""


def first(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The first argument."""
    return argument(args, kwargs, 0, "input")


def operands(func: Callable[..., Any], args: tuple[Any, ...]) -> Sequence[Any]:
    """The arguments; those of an einsum may be in a list."""
    listed = func is torch.einsum and len(args) == 2 and isinstance(args[1], (list, tuple))
    return args[1] if listed else args


def argument(args: tuple[Any, ...], kwargs: Mapping[str, Any], number: int, name: str) -> Any:
    """The argument with this number, or of this name."""
    return args[number] if number < len(args) else kwargs.get(name)


def is_last(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a softmax is over the last dimension."""
    dim = argument(args, kwargs, 1, "dim")
    tensor: Tensor = first(args, kwargs)
    return isinstance(dim, int) and dim in (-1, tensor.dim() - 1)
