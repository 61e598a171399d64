"""Modules that write attention out: q·k, a scale, masks, softmax, and the product with v.

While such a module runs, its torch functions pass through `Follower`. It follows each product of two tensors through what is
done to it. When a softmax over the last dimension meets one, q, k and the scale are known, and what was added is what is left:

    logits = scale·q·k + rest

The weights of the operator are returned in place of that softmax; dropout and the product with v stay the module's own. The
weights are followed to that product, so that observers see v too. If the module calls F.scaled_dot_product_attention instead, in
another branch or in a way that its code does not show, that call goes to the operator.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from eureka.attention.explicit import full_precision, logits_of, wide
from eureka.attention.fused import plain_beta
from eureka.attention.mask import Bias, Mask, NoMask
from eureka.attention.operator import Operator
from eureka.errors import WorkError
from eureka.patching.einsum import as_product, values_in
from eureka.patching.functions import (
    ADDING,
    BADDBMM,
    BMM,
    DIVIDING,
    MULTIPLY,
    SAME_VALUES,
    SCALING,
    SOFTMAX,
    THINNING,
    argument,
    first,
    is_last,
    operands,
)
from eureka.patching.masks import heads_axis, rescaled
from eureka.patching.sdpa import ORIGINAL, current, detour, detoured, inside_operator, running, uncompiled_method
from eureka.patching.selfcheck import PLAIN, due, verify
from eureka.patching.slot import SUBMODULE, base_class, find_slot, observe


class ByHandSite(nn.Module):
    """A module whose softmax over q·k is the operator of its slot."""

    @staticmethod
    def wrap(name: str) -> Callable[..., Any]:
        """A method that runs the method of the base class and follows its products."""
        return uncompiled_method(_run, name)


class BranchingSite(ByHandSite):
    """A module that calls F.scaled_dot_product_attention in one branch and writes attention out in another, as in nanoGPT."""


def _run(module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    frame = current()
    function = getattr(base_class(module), name)
    if frame is not None and frame.module is module:  # one wrapped method called another
        return function(module, *args, **kwargs)
    alone = not isinstance(module, BranchingSite)
    around = nullcontext() if alone else detoured(module)
    with around, running(module, takes_calls=True, idle=alone), Follower(module, alone=alone):
        return function(module, *args, **kwargs)


@dataclass(frozen=True, eq=False)
class Product:
    """A tensor that is scale·q·k, or that and more."""

    q: Tensor
    """(…, Q, D)"""
    k: Tensor
    """(…, K, D)"""
    lead: tuple[int, ...]
    """The dimensions of the product before Q and K."""
    scale: float = 1.0
    bare: bool = True
    """Whether nothing was done to it but scaling."""


class Weights(NamedTuple):
    """A tensor that is the weights of an attention, perhaps thinned out: what an observer is told of it, but for v."""

    q: Tensor
    k: Tensor
    mask: Mask
    operator: Operator | None
    axis: int | None
    """The axis of the heads, if it is not the third from behind."""


class Follower(TorchFunctionMode):
    """Follows products to their softmax, and weights to their values, while a module runs.

    alone   whether its softmax is all the attention there is: then one that cannot be swapped is an error
    """

    def __init__(self, module: nn.Module, *, alone: bool = True) -> None:
        super().__init__()
        self._module, self._alone = module, alone
        self._known: dict[int, tuple[Callable[[], Tensor | None], Product | Weights, int]] = {}
        """By the id of a tensor: the tensor, what it is, and its version."""
        self._untold: Weights | None = None
        """The last call; observers are told of it when it is clear which values its weights were multiplied with."""
        self._values: list[Tensor | None] = []
        """What they were multiplied with so far."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        frame = current()
        if frame is None or frame.module is not self._module:  # inside an operator, or inside another site
            return func(*args, **kwargs)
        if func in SOFTMAX:
            return self._softmax(func, args, kwargs)
        if func is ORIGINAL:
            return detour(*args, **kwargs)
        given = [one for one in operands(func, args) if self._of(one) is not None]
        known = self._of(given[0]) if given else None
        result = func(*args, **kwargs)
        if isinstance(known, Weights):
            self._weighted(func, args, kwargs, given[0], known, result)
        if func in MULTIPLY and isinstance(result, Tensor):
            self._multiplied(func, args, kwargs, result)
        elif isinstance(known, Product):
            self._follow(func, args, kwargs, given[0], known, result)
        return result

    def __exit__(self, *error: Any) -> None:
        if error[0] is None:
            self._tell()
        self._known.clear()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def _of(self, value: Any) -> Product | Weights | None:
        held = self._known.get(id(value)) if isinstance(value, Tensor) else None
        return held[1] if held is not None and held[0]() is value else None

    def _keep(self, tensor: Any, what: Product | Weights) -> None:
        """Know a tensor as a product or as weights for as long as it lives."""
        if isinstance(tensor, Tensor):
            number = id(tensor)
            self._known[number] = (weakref.ref(tensor, lambda _: self._known.pop(number, None)), what, _version(tensor))

    def _weighted(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], tensor: Tensor, of: Weights, result: Any
    ) -> None:
        """What a function makes of weights: it keeps them, or mixes values with them."""
        if func.__name__.strip("_") in (*SAME_VALUES, *THINNING):
            self._keep(tensor if result is None else result, of)
        elif func in MULTIPLY and of is self._untold:
            right = argument(args, kwargs, 1, "mat2" if func in BMM else "other")
            values = values_in(args, tensor) if func is torch.einsum else right if args[0] is tensor else None
            self._values.append(_values(values, tensor, of))

    def _tell(self) -> None:
        """Tell the observers of the last call; of its values only if there are no others."""
        call, values, self._untold, self._values = self._untold, self._values, None, []
        if call is not None:
            with inside_operator():
                v = values[0] if len(values) == 1 else None
                observe(self._module, SUBMODULE, call.q, call.k, v, call.mask, call.operator)

    def _multiplied(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Tensor) -> None:
        """A product of two tensors may be q·k."""
        bare, scale = True, 1.0
        if func in BADDBMM:
            left, right = (argument(args, kwargs, number, f"batch{number}") for number in (1, 2))
            scale, bare = float(kwargs.get("alpha", 1.0)), kwargs.get("beta", 1.0) == 0
        elif func is torch.einsum:
            if (pair := as_product(args)) is None:
                return
            left, right = pair
        else:
            left, right = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "mat2" if func in BMM else "other")
        if isinstance(left, Tensor) and isinstance(right, Tensor) and min(left.dim(), right.dim(), result.dim()) >= 3:
            frame = current()
            assert frame is not None
            frame.idle = False
            lead = tuple(result.shape[:-2])
            self._keep(result, Product(left, right.transpose(-1, -2), lead, scale, bare))

    def _follow(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        tensor: Tensor,
        product: Product,
        result: Any,
    ) -> None:
        """What a function makes of a product; a function that is not known here ends the trail."""
        name = func.__name__.strip("_")
        if _version(tensor) != self._known[id(tensor)][2] and name not in ADDING and name not in SCALING:
            self._known.pop(id(tensor))  # written over by something else
            return
        if result is not None and not isinstance(result, Tensor):
            return
        if name in ("mul", "rmul", "imul") and _is_full(tensor, args):
            self._keep(result, replace(product, bare=False))  # by a mask of ones and zeros
        elif name in SCALING:
            other = next((one for one in (*args, *kwargs.values()) if one is not tensor and not isinstance(one, str)), None)
            scaled = _scaled(product, other, name, tensor, divided=args[0] is tensor)
            if scaled is not None:
                self._keep(result, scaled)
        elif name in SAME_VALUES:
            self._keep(result, product)
        elif name in ADDING:
            self._keep(tensor if result is None else result, replace(product, bare=False))

    def _softmax(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        logits: Tensor = first(args, kwargs)
        product, frame = self._of(logits), current()
        assert frame is not None
        fits = isinstance(product, Product) and logits.shape[-2:] == (product.q.shape[-2], product.k.shape[-2])
        if not isinstance(product, Product) or not fits or not is_last(args, kwargs):
            doubtful = product is not None or (is_last(args, kwargs) and logits.dim() >= 3)
            frame.missed = frame.missed or (self._alone and doubtful)
            return func(*args, **kwargs)
        frame.reached = True
        if 0 in logits.shape:
            return func(*args, **kwargs)
        self._tell()
        if _version(logits) != self._known[id(logits)][2]:  # a view of it was written to
            product = replace(product, bare=False)
        with inside_operator():
            weights = self._weights(product, logits, func, args, kwargs)
        if self._untold is not None:
            self._keep(weights, self._untold)
        return weights

    def _weights(
        self, product: Product, logits: Tensor, func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Any:
        operator: Operator | None = getattr(self._module, SUBMODULE, None)
        slot = find_slot(self._module, SUBMODULE)
        heads = None if slot is None else slot.heads
        axis = heads_axis(logits.shape, heads)
        q, k, mask = _parts(product, logits, heads, axis)
        self._untold = Weights(q, k, mask, operator, axis)
        if operator is None:
            return func(*args, **kwargs)
        if operator.needs_values:
            raise WorkError(
                f"{type(self._module).__name__} writes its softmax out here, where {type(operator).__name__} cannot reach its"
                " values; leave it out with layers=…, or make it call F.scaled_dot_product_attention."
            )
        dtype = kwargs.get("dtype") or next((one for one in args if isinstance(one, torch.dtype)), None) or logits.dtype

        def weights(operator: Operator) -> Tensor:
            shape = _heads_last(logits, axis).shape
            return _heads_back(operator.weights(q, k, mask).reshape(shape), axis).to(dtype)

        if due(self._module, SUBMODULE) is not None:
            verify(self._module, SUBMODULE, lambda: func(*args, **kwargs), lambda: weights(PLAIN))
        return weights(operator)


def _parts(product: Product, logits: Tensor, heads: int | None, axis: int | None) -> tuple[Tensor, Tensor, Mask]:
    """q in the scale of the operators, k, and what was added to scale·q·k as a bias; (B, H, …) each."""
    (queries, width), keys = product.q.shape[-2:], product.k.shape[-2]
    logits = _heads_last(logits, axis)
    lead = _lead(logits, heads)
    whole = (x.expand(*product.lead, *x.shape[-2:]) for x in (product.q, product.k))
    q, k = (_heads_last(x, axis).reshape(*lead, -1, width) for x in whole)
    q = rescaled(q, product.scale)
    if product.bare:
        return q, k, NoMask()
    with full_precision(q):
        return q, k, Bias(wide(logits.reshape(*lead, queries, keys)) - logits_of(q * plain_beta(q), k))


def _heads_last(x: Tensor, axis: int | None) -> Tensor:
    return x if axis is None else x.movedim(axis, -3)


def _heads_back(x: Tensor, axis: int | None) -> Tensor:
    return x if axis is None else x.movedim(-3, axis)


def _values(values: Any, weights: Tensor, of: Weights) -> Tensor | None:
    """Values that (…, Q, K) weights were multiplied with, (B, H, K, D); one head for all is repeated. None if they do not fit."""
    lead, shape = weights.shape[:-2], of.q.shape
    if of.axis is not None and len(lead) <= of.axis:
        return None
    if not isinstance(values, Tensor) or not 2 <= values.dim() <= weights.dim() or values.shape[-2] != weights.shape[-1]:
        return None
    own = (1,) * (weights.dim() - values.dim()) + tuple(values.shape[:-2])
    if any(size not in (1, whole) for size, whole in zip(own, lead, strict=True)) or math.prod(lead) != math.prod(shape[:2]):
        return None
    return _heads_last(values.expand(*lead, *values.shape[-2:]), of.axis).reshape(*shape[:2], *values.shape[-2:])


def _lead(logits: Tensor, heads: int | None) -> tuple[int, int]:
    """(B, H): the dimensions before the last two; where samples and heads are one dimension, the module knows how many heads."""
    if logits.dim() >= 4:
        return math.prod(logits.shape[:-3]), logits.shape[-3]
    both = logits.shape[0]
    return (both // heads, heads) if heads and both % heads == 0 else (both, 1)


def _scaled(product: Product, other: Any, name: str, tensor: Tensor, *, divided: bool) -> Product | None:
    """A product times a number, or times one for each row; None for anything else."""
    divides = name in DIVIDING
    if divides and not divided:
        return None
    if isinstance(other, (int, float)):
        return replace(product, scale=product.scale / other if divides else product.scale * other)
    if not isinstance(other, Tensor):
        return None
    if other.dim() and (other.shape[-1] != 1 or other.dim() > len(product.lead) + 2 or tensor.dim() != len(product.lead) + 2):
        return None
    return replace(product, q=product.q / other if divides else product.q * other)


def _is_full(tensor: Tensor, args: tuple[Any, ...]) -> bool:
    """Whether a product is multiplied by a number for each key."""
    other = args[1] if args[0] is tensor else args[0]
    return isinstance(other, Tensor) and other.dim() > 0 and other.shape[-1] == tensor.shape[-1] > 1


def _version(tensor: Tensor) -> int:
    """How often a tensor, or what it is a view of, was written to; inference mode does not count."""
    return 0 if tensor.is_inference() else tensor._version
