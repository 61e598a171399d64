"""Which patched module is running on this thread, and whether it has reached its operator yet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import nn

from eureka.errors import WorkError


@dataclass
class Frame:
    """One running forward of a patched module."""

    module: nn.Module
    takes_calls: bool
    """Whether calls of F.scaled_dot_product_attention inside it are its attention."""
    reached: bool = False


class _Local(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame | None] = []


_local = _Local()


def current() -> Frame | None:
    return _local.frames[-1] if _local.frames else None


@contextmanager
def running(module: nn.Module, *, takes_calls: bool) -> Iterator[None]:
    """A forward of a patched module; one that ends without having reached its operator would be a patch without effect."""
    frame = Frame(module, takes_calls)
    _local.frames.append(frame)
    try:
        yield
    finally:
        _local.frames.pop()
    if not frame.reached:
        raise WorkError(
            f"{type(module).__name__} was patched, but this call of it made no attention call that could be swapped: it computes"
            " attention in a way of its own here. Leave it out with layers=…, or make it call F.scaled_dot_product_attention."
        )


@contextmanager
def inside_operator() -> Iterator[None]:
    """Operators call F.scaled_dot_product_attention themselves; those calls are nobody's site."""
    _local.frames.append(None)
    try:
        yield
    finally:
        _local.frames.pop()


def reach(module: nn.Module) -> None:
    """The operator of this module is being called."""
    frame = current()
    if frame is not None and frame.module is module:
        frame.reached = True
