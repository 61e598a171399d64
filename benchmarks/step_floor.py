"""The least that a training step can take here: its matrix products at the rate that they reach, other passes at that of a copy.

Every operation of a step is seen as it is dispatched. Those that make a new tensor are done again, alone, with the very tensors
that they got, and timed: products (of matrices, or a fused attention) and all others. What is not a product reads its inputs and
writes its outputs; if it did nothing else, it would go at the rate at which this machine copies a few megabytes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from eureka.bench.timing import Job, interleaved

COPIED = 2**20
"""Floats of the tensor whose copy is timed: as large as what a step of a small model writes."""
SMALL = 2**16
"""Bytes; an operation that moves fewer is not counted: it is little but the call."""
Kind = tuple[Any, tuple[Any, ...]]
"""An operation, and the shapes and strides of its inputs."""


@dataclass(frozen=True)
class StepFloor:
    """Seconds of one step, if nothing but these took time."""

    products: float
    passes: float
    """everything else at the rate of a copy"""
    others: float
    """everything else that makes a new tensor, each as fast as it is alone: a GELU or a softmax is arithmetic, too"""


@dataclass
class Seen:
    """The operations of a step: how each is done again, and how often it was done."""

    products: dict[Kind, tuple[Job, int]] = field(default_factory=dict)
    others: dict[Kind, tuple[Job, int]] = field(default_factory=dict)
    moved: int = 0
    """bytes that all but the products read and write"""


def step_floor(step: Callable[[], object], rounds: int = 6) -> StepFloor:
    """Watch one step, then time its operations and a copy."""
    seen = Seen()
    with _Watching(seen):
        step()
    source = torch.rand(COPIED)
    target = torch.empty_like(source)
    with torch.no_grad():
        copy = interleaved({"copy": lambda: target.copy_(source)}, rounds)["copy"]
        products, others = _total(seen.products, rounds), _total(seen.others, rounds)
    return StepFloor(products, seen.moved * copy / (2 * source.nbytes), others)


def _total(operations: dict[Kind, tuple[Job, int]], rounds: int) -> float:
    """Seconds of all of them, each at its fastest."""
    counts = {str(number): often for number, (_, often) in enumerate(operations.values())}
    seconds = interleaved({str(number): job for number, (job, _) in enumerate(operations.values())}, rounds, budget=10.0)
    return sum(seconds[number] * often for number, often in counts.items())


class _Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, seen: Seen) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        inputs, outputs = _tensors((args, kwargs)), _tensors(made)
        is_product = func.overloadpacket in flop_registry
        moved = _moved(inputs, outputs)
        if func.is_view or moved < SMALL:
            return made
        if not is_product:
            self.seen.moved += moved
        if not any(one is other for one in outputs for other in inputs):
            again = self.seen.products if is_product else self.seen.others
            kind = func, tuple((one.shape, one.stride()) for one in inputs)
            job, often = again.get(kind, (lambda: func(*args, **kwargs), 0))
            again[kind] = job, often + 1
        return made


def _tensors(values: Any) -> list[Tensor]:
    return [value for value in tree_leaves(values) if isinstance(value, Tensor)]


def _moved(inputs: list[Tensor], outputs: list[Tensor]) -> int:
    """Bytes read and written; an output that only looks at an input, as a reshape that needs no copy does, moves none."""
    read = {one.untyped_storage().data_ptr() for one in inputs}
    is_new = any(one.untyped_storage().data_ptr() not in read for one in outputs)
    in_place = any(one is other for one in outputs for other in inputs)
    return sum(min(one.nbytes, one.untyped_storage().nbytes()) for one in [*inputs, *outputs]) if is_new or in_place else 0
