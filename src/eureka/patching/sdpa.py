"""Modules that call F.scaled_dot_product_attention themselves: nanoGPT, timm, home-made ones.

While such a module runs, the function is replaced by `detour`. It looks up which patched module is running on its own thread:
inside one it calls the operator, everywhere else the original function.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention.operator import Operator
from eureka.errors import RequestError, WorkError
from eureka.patching.bytecode import global_names
from eureka.patching.masks import heads_axis, is_empty, mask_of, rescaled, same_batch
from eureka.patching.selfcheck import PLAIN, due, verify
from eureka.patching.slot import SUBMODULE, base_class, find_slot, observe

FUNCTION = "scaled_dot_product_attention"
ORIGINAL = F.scaled_dot_product_attention

Place = tuple[dict[str, Any], str]
"""A namespace and a name in it."""

_lock = threading.Lock()
_users: dict[tuple[int, str], int] = {}
_before: dict[tuple[int, str], Any] = {}


@dataclass
class Frame:
    """One running forward of a patched module."""

    module: nn.Module
    takes_calls: bool
    """Whether calls of F.scaled_dot_product_attention inside it are its attention."""
    reached: bool = False
    """Whether it has called its operator."""
    missed: bool = False
    """Whether it took a softmax that could not be swapped."""
    idle: bool = False
    """Whether it is known to have attended to nothing so far: no product of two tensors was made."""


class _Local(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame | None] = []


_local = _Local()


def current() -> Frame | None:
    """The innermost patched module that is running on this thread; None inside an operator."""
    return _local.frames[-1] if _local.frames else None


@contextmanager
def running(module: nn.Module, *, takes_calls: bool, idle: bool = False) -> Iterator[None]:
    """Mark a patched module as running; it is an error if it ends without a call of its operator: the patch had no effect.

    Where it is only observed, nothing is lost: the observer sees no call.
    """
    frame = Frame(module, takes_calls, idle=idle)
    _local.frames.append(frame)
    try:
        yield
    finally:
        _local.frames.pop()
    if ((frame.reached or frame.idle) and not frame.missed) or not any(
        isinstance(child, Operator) for child in module.children()
    ):
        return
    if (check := due(module, SUBMODULE)) is not None:
        check.undo()
    what = "an attention call that could not be swapped" if frame.reached else "no attention call that could be swapped"
    raise WorkError(
        f"{type(module).__name__} was patched, but this call of it made {what}: it computes attention in a way of its own here."
        " Leave it out with layers=…, or make it call F.scaled_dot_product_attention."
    )


@contextmanager
def inside_operator() -> Iterator[None]:
    """Operators call F.scaled_dot_product_attention themselves; those calls belong to no site."""
    _local.frames.append(None)
    try:
        yield
    finally:
        _local.frames.pop()


def mark_reached(module: nn.Module) -> None:
    """Note that the operator of this module is being called."""
    frame = current()
    if frame is not None and frame.module is module:
        frame.reached = True


class CallSite(nn.Module):
    """A module whose calls of the function go to the operator of its slot."""

    @staticmethod
    def wrap(name: str) -> Callable[..., Any]:
        """A method that runs the method of the base class under the detour."""
        return uncompiled_method(_run, name)


def uncompiled_method(run: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method that calls run(self, name, args, kwargs), and not compiled: dynamo would trace past the detour."""

    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            from eureka.patching.uncompiled import uncompiled

            return uncompiled(run, self, name, args, kwargs)
        return run(self, name, args, kwargs)

    method.__name__ = name
    return method


def _run(module: nn.Module, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    frame = current()
    function = getattr(base_class(module), name)
    if frame is not None and frame.module is module:  # one wrapped method called another
        return function(module, *args, **kwargs)
    with detoured(module), running(module, takes_calls=True):
        return function(module, *args, **kwargs)


def detoured(module: nn.Module) -> AbstractContextManager[None]:
    """While inside, every name by which a module reaches the function is that of the detour."""
    held = [(module.__dict__, key) for key, value in module.__dict__.items() if is_function(value)]
    return _detoured([*places(base_class(module)), *held])


@cache
def places(base: Any) -> tuple[Place, ...]:
    """Every name by which the code of a class reaches the function: F's own, and those imported from there."""
    imported = [place for place in global_names(base) if is_function(place[0].get(place[1]))]
    return ((vars(F), FUNCTION), *(place for place in imported if place[0] is not vars(F)))


def is_function(value: Any) -> bool:
    """Whether this is the function, or the detour that another thread has put in its place."""
    return value is ORIGINAL or value is detour


@contextmanager
def _detoured(where: Sequence[Place]) -> Iterator[None]:
    """Replace the function in these places; they are restored when the last thread has left."""
    with _lock:
        for space, name in where:
            key = (id(space), name)
            if not _users.get(key):
                _before[key] = space[name]
                space[name] = detour
            _users[key] = _users.get(key, 0) + 1
    try:
        yield
    finally:
        with _lock:
            for space, name in where:
                key = (id(space), name)
                _users[key] -= 1
                if not _users[key]:
                    space[name] = _before.pop(key)


def detour(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Stands in for F.scaled_dot_product_attention while a patched module runs on any thread."""
    frame = current()
    before = _before.get((id(vars(F)), FUNCTION), ORIGINAL)
    own: Callable[..., Tensor] = before if before is not detour else ORIGINAL
    extra = {"enable_gqa": True} if enable_gqa else {}

    def plain(dropout: float = dropout_p) -> Tensor:
        return own(query, key, value, attn_mask, dropout, is_causal, scale=scale, **extra)

    if frame is None or not frame.takes_calls:
        return plain()
    frame.reached = True
    module = frame.module
    with inside_operator():
        operator: Operator | None = getattr(module, SUBMODULE, None)
        if operator is None and not _observed(module):
            return plain()
        if is_empty(query, key):
            return plain()
        if not _understood(query, key, value, attn_mask, is_causal):
            plain()  # raises what the function raises
            raise RequestError("a patched scaled_dot_product_attention takes a boolean or float mask, or is_causal=True.")
        axis = _heads_axis(module, query, key, value, attn_mask)
        given = [x if axis is None else x.movedim(axis, -3) for x in (query, key, value)]
        lead = torch.broadcast_shapes(given[0].shape[:-3], given[1].shape[:-3])  # type: ignore[no-untyped-call]
        shape = lead + given[0].shape[max(0, query.dim() - 3) : -1]

        def whole(mixed: Tensor) -> Tensor:
            mixed = mixed.reshape(*shape, value.shape[-1])
            return mixed if axis is None else mixed.movedim(-3, axis)

        q, k, v = same_batch(*(_four(x, shape) for x in given))
        mask = None if attn_mask is None else _four(_aligned(attn_mask, given[0], shape), None)
        q, kind = rescaled(q, scale), mask_of(mask, is_causal)
        observe(module, SUBMODULE, q, k, v, kind, operator)
        if operator is None:
            return plain()
        if due(module, SUBMODULE) is not None:
            verify(module, SUBMODULE, lambda: plain(0.0), lambda: whole(PLAIN(q, k, v, kind)))
        return whole(operator(q, k, v, kind, dropout_p))


def _heads_axis(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> int | None:
    """The axis of the heads, if it is not the third from behind; asked where all three are alike and no mask has such axes."""
    slot = find_slot(module, SUBMODULE)
    alike = query.shape[:-2] == key.shape[:-2] == value.shape[:-2] and (mask is None or mask.dim() <= 2)
    return heads_axis(query.shape, slot.heads) if slot is not None and alike else None


def _understood(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, is_causal: bool) -> bool:
    """Whether these are arguments that the function itself takes."""
    if min(q.dim(), k.dim(), v.dim()) < 2 or (mask is not None and is_causal):
        return False
    return mask is None or ((mask.dtype == torch.bool or mask.is_floating_point()) and mask.dim() <= q.dim())


def _observed(module: nn.Module) -> bool:
    slot = find_slot(module, SUBMODULE)
    return slot is not None and bool(slot.observers)


def _four(x: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    """(B, H, N, D) from (N, D), (B, N, D), (B, H, N, D), or from more batch dimensions in front, which become one."""
    if x.dim() < 4:
        return x[None, None] if x.dim() == 2 else x.unsqueeze(1)
    if x.dim() > 4 and shape is not None:
        x = x.expand(*shape[:-2], *x.shape[-3:])
    return x.flatten(0, -4)


def _aligned(mask: Tensor, query: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A mask with the batch dimensions of the result: missing ones are added in front, as in broadcasting."""
    mask = mask[(None,) * (query.dim() - mask.dim())]
    if query.dim() <= 4 or all(size == 1 for size in mask.shape[:-3]):
        return mask
    return mask.expand(*shape[:-2], *mask.shape[-3:])
