"""A look into one forward pass and its loss: what enters the model, what its last layer gives, what the loss is computed from.

PyTorch tells every call of its functions to a mode (`TorchFunctionMode`), also those in code that is not a module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

PRODUCTS = frozenset({"linear", "matmul", "__matmul__", "einsum", "bmm", "addmm", "mm"})
"""Functions that may be a model's last layer."""
LOSSES = frozenset(
    {"cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "l1_loss"}
    | {"smooth_l1_loss", "huber_loss", "kl_div"}
)
DIFFERENCES = frozenset({"sub", "__sub__", "rsub", "__rsub__", "subtract"})
CHOICES = frozenset({"min", "amin", "max", "amax", "argmin", "argmax", "sort", "argsort", "topk", "kthvalue", "exp", "logsumexp"})
"""Functions that choose among, or weigh, differences of all pairs: who calls one has compared all with all on purpose."""
ATTENTIONS = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})
PASSED_ON = frozenset({"dropout", "to", "type_as", "float", "half", "bfloat16", "contiguous", "masked_fill", "nan_to_num"})
"""Functions whose result still is a matrix of attention weights."""


@dataclass(frozen=True)
class LossCall:
    """A call of one of PyTorch's losses."""

    name: str
    given: Tensor
    target: Tensor
    settings: Mapping[str, Any]
    result: Tensor


@dataclass(frozen=True)
class SoftmaxCall:
    """A softmax whose result was multiplied with something: attention written out by hand."""

    weights: Tensor
    axis: int
    """of the softmax, from the end: -1 is the last"""
    summed: int
    """the axis that the product sums over, from the end"""


@dataclass(frozen=True)
class AttentionCall:
    """A call of PyTorch's own attention."""

    given: tuple[Tensor, ...]
    """queries, keys and values"""
    result: Tensor


@dataclass
class View:
    """What was seen."""

    inputs: tuple[Any, ...] = ()
    """the positional arguments of the model, in the last pass before the first loss"""
    keywords: Mapping[str, Any] = field(default_factory=dict)
    head: Tensor | None = None
    """what the last product before the loss gives: logits"""
    losses: list[LossCall] = field(default_factory=list)
    softmaxes: list[SoftmaxCall] = field(default_factory=list)
    attentions: list[AttentionCall] = field(default_factory=list)
    silent: list[Tensor] = field(default_factory=list)
    """for each ReLU, which of its units gave zero everywhere"""
    differences: list[tuple[int, torch.Size, torch.Size]] = field(default_factory=list)
    """subtractions of something known from something computed that stretch both, perhaps unnoticed: after how many products, and
    the two shapes"""
    leaves: list[Tensor] = field(default_factory=list)
    """tensors in the forward pass that ask for a gradient and are the result of nothing: parameters, whoever holds them"""
    inside: bool = False
    """the model is being called"""
    accumulated: bool = False
    """the model was called again after the first loss: on other samples, if gradients are accumulated"""
    products: int = 0
    loss: Tensor | None = None

    @property
    def stretched(self) -> tuple[torch.Size, torch.Size] | None:
        """The shapes of a prediction and a target that are subtracted crosswise, after the last product."""
        return next(((a, b) for after, a, b in self.differences if after == self.products), None)

    @property
    def loss_on_inputs(self) -> Tensor | None:
        """The loss on what was seen to enter the model: the first one, if there are others on other samples."""
        return self.losses[0].result.detach().mean() if self.accumulated else self.loss

    @property
    def tokens(self) -> Tensor | None:
        """The numbers of tokens that the model was given, (B, T)."""
        return next(iter(self.all_tokens), None)

    @property
    def all_tokens(self) -> list[Tensor]:
        """Everything that may be numbers of tokens: a decoder is given a second sequence."""
        found = [one for one in tree_leaves((self.inputs, self.keywords)) if isinstance(one, Tensor)]
        return [one for one in found if one.dim() == 2 and _is_integer(one) and one.shape[1] > 1 and _varied(one)]


class Listener(TorchFunctionMode):
    """Fills a `View`.

    replace   given the result of the last product before the loss, what to use in its place; needs the number of that product
    """

    def __init__(self, view: View, head: int | None = None, replace: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.view, self.products, self._head, self._replace = view, 0, head, replace
        self._weights: dict[int, tuple[Tensor, int]] = {}
        self._pairs = torch.Size()
        """the shape of the last difference of all pairs"""
        self._seen: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        result = func(*args, **kwargs)
        if self.view.inside and torch.is_grad_enabled():
            self._keep_leaves(args)
        if name in LOSSES:
            self._keep_loss(name, args, kwargs, result)
        elif name in ATTENTIONS:
            self._keep_attention(args, kwargs, result)
        elif name in CHOICES:
            self._drop_differences(name, args, kwargs)
        elif not isinstance(result, Tensor):
            return result
        elif name == "softmax":
            self._keep_softmax(result, args, kwargs)
        elif name in PASSED_ON:
            self._pass_on(result, args)
        elif name in ("relu", "relu_"):
            self._keep_silent(result.detach())
        if name in DIFFERENCES:
            self._keep_difference(args, result)
        if name in PRODUCTS:
            self._keep_product(name, args, result)
            if not self.view.losses:
                self.products += 1
                if self._replace is not None and self.products == self._head:
                    result = self._replace(result) + 0.0 * result  # the graph stays whole, for who goes backward
                self.view.head = result
        return result

    def _keep_silent(self, result: Tensor) -> None:
        if self.view.inside and result.dim() > 1 and result.shape[-1] > 1:  # units, not a hinge of the loss
            self.view.silent.append((result == 0).flatten(0, -2).all(dim=0))

    def _keep_leaves(self, args: Any) -> None:
        for one in args:
            if type(one) in (nn.Parameter, Tensor) and one.requires_grad and one.is_leaf and id(one) not in self._seen:
                self._seen.add(id(one))
                self.view.leaves.append(one)

    def _keep_difference(self, args: Any, result: Tensor) -> None:
        tensors = [one for one in args if isinstance(one, Tensor)]
        shapes = [one.shape for one in tensors]
        if len(tensors) != 2 or len(shapes[0]) == len(shapes[1]):  # an axis of one, put in by hand, says what is meant
            return
        if tensors[0].requires_grad != tensors[1].requires_grad and result.shape not in shapes:
            self.view.differences.append((self.products, shapes[0], shapes[1]))
            self._pairs = result.shape

    def _drop_differences(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Differences that are chosen among along an axis were meant."""
        along = name == "exp" or any(isinstance(one, int) for one in args[1:]) or {"dim", "axis"} & kwargs.keys()
        shape = args[0].shape if args and isinstance(args[0], Tensor) else torch.Size()
        if along and len(shape) > 1 and self._pairs[: len(shape)] == shape:
            self.view.differences.clear()

    def _keep_attention(self, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        given = (*args[:3], *(kwargs[name] for name in ("query", "key", "value") if name in kwargs))
        result = result[0] if isinstance(result, tuple) else result
        if len(given) == 3 and all(isinstance(one, Tensor) for one in (*given, result)):
            self.view.attentions.append(AttentionCall(tuple(one.detach() for one in given), result.detach()))

    def _keep_loss(self, name: str, args: Any, kwargs: Mapping[str, Any], result: Tensor) -> None:
        names = ("input", "target")
        named = dict(zip(names, args, strict=False)) | dict(kwargs)
        if isinstance(named.get("input"), Tensor) and isinstance(named.get("target"), Tensor):
            settings = {key: value for key, value in named.items() if key not in names}
            self.view.losses.append(LossCall(name, named["input"], named["target"], settings, result))

    def _keep_softmax(self, result: Tensor, args: Any, kwargs: Mapping[str, Any]) -> None:
        axis = kwargs.get("dim", args[1] if len(args) > 1 else None)
        if isinstance(axis, int) and result.dim() >= 2:
            self._weights[id(result)] = (result, axis if axis < 0 else axis - result.dim())

    def _pass_on(self, result: Tensor, args: Any) -> None:
        if args and id(args[0]) in self._weights and result.shape == args[0].shape:
            self._weights[id(result)] = (result, self._weights[id(args[0])][1])

    def _keep_product(self, name: str, args: Any, result: Tensor) -> None:
        tensors = [one for one in tree_leaves(args) if isinstance(one, Tensor)]
        for place, one in enumerate(tensors[:2]):
            if id(one) in self._weights and len(tensors) == 2:
                summed = _summed_axis(name, args, place)
                if summed is not None:
                    self.view.softmaxes.append(SoftmaxCall(one.detach(), self._weights[id(one)][1], summed))


def _summed_axis(name: str, args: Any, place: int) -> int | None:
    """The axis of a factor that a product sums over, from the end."""
    if name != "einsum":
        return -1 if place == 0 else -2
    if not isinstance(args[0], str) or "->" not in args[0]:
        return None
    left, _, out = args[0].replace(" ", "").partition("->")
    letters = left.split(",")[place]
    gone = [i - len(letters) for i, letter in enumerate(letters) if letter not in out and letter != "."]
    return gone[0] if len(gone) == 1 else None


@contextmanager
def _entering(model: nn.Module, view: View) -> Iterator[None]:
    def enter(_: nn.Module, args: Any, kwargs: Any) -> None:
        if view.losses:
            view.accumulated = True
        else:
            view.inputs, view.keywords = args, kwargs
        view.inside = True

    def leave(_: nn.Module, __: Any, ___: Any) -> None:
        view.inside = False

    handles = [model.register_forward_pre_hook(enter, with_kwargs=True), model.register_forward_hook(leave)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def look(
    model: nn.Module,
    loss: Callable[[], Tensor],
    *,
    head: int | None = None,
    replace: Callable[[Tensor], Tensor] | None = None,
    whole: bool = True,
) -> tuple[View, int]:
    """Compute the loss of a model and see what happens; also the number of the last product before the loss.

    whole   False if the loss may fail: what was seen until then is returned
    """
    view = View()
    listener = Listener(view, head, replace)
    try:
        with _entering(model, view), listener:
            view.loss = loss()
    except Exception:
        if whole:
            raise
    view.products = listener.products
    return view, listener.products


def named_tensors(values: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """All tensors in a batch, of whatever kind, each with the last key or field that leads to it; empty if there is none."""
    if isinstance(values, Tensor):
        yield name, values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from named_tensors(value, str(key))
    elif is_dataclass(values) and not isinstance(values, type):
        for one in fields(values):
            yield from named_tensors(getattr(values, one.name, None), one.name)
    elif isinstance(values, list | tuple):
        for key, value in zip(getattr(values, "_fields", [name] * len(values)), values, strict=True):
            yield from named_tensors(value, key)


def integer_tensors(batch: Any) -> list[Tensor]:
    """All tensors of whole numbers in a batch."""
    return [one for one in tree_leaves(batch) if isinstance(one, Tensor) and _is_integer(one)]


def float_tensors(values: Any) -> list[Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, Tensor) and one.is_floating_point()]


def _is_integer(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _varied(tensor: Tensor) -> bool:
    """Not a mask of zeros and ones, nor the numbers of the places."""
    return bool((tensor > 1).any()) and not all(torch.equal(tensor[0], row) for row in tensor[1:])
