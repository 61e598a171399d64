"""What sits at a site: a stack of operators, the newest on top, and observers; kept on the module itself.

Because it is kept there, a deep copy or a pickle of a patched model is a patched model with operators of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from eureka.attention.checks import checked
from eureka.attention.mask import Mask
from eureka.attention.operator import Operator

SLOT = "eureka_operator"
"""The name of the submodule that holds the operator of a swapped module."""
SEATS = "_eureka_seats"


class Seen(NamedTuple):
    """One attention call, as an observer is told it.

    q is in the scale of the operators, where plain softmax divides q·k by √d, whatever the scale of the model.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    operator: Operator | None
    """None when the model's own attention was used."""


Observer = Callable[[Seen], None]


@dataclass
class Seat:
    """The operators of one site and who watches it."""

    original: Operator | None = None
    """What the model itself had there, when that is an operator."""
    operators: list[tuple[str, Operator]] = field(default_factory=list)
    observers: dict[str, Observer] = field(default_factory=dict)
    hook: Any = None
    """Watches an operator that is the model's own submodule."""

    def top(self) -> Operator | None:
        return self.operators[-1][1] if self.operators else self.original

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "observers": {}, "hook": None}  # a probe watches one model, not its copies


def seats(module: nn.Module) -> dict[str, Seat]:
    """The seats of a module by the name of the submodule they fill."""
    found: dict[str, Seat] = module.__dict__.setdefault(SEATS, {})
    return found


def settle(module: nn.Module, slot: str) -> None:
    """Make the submodule what the seat says; forget a seat that nobody uses."""
    seat = seats(module)[slot]
    top = seat.top()
    if top is None:
        module._modules.pop(slot, None)
    else:
        module._modules[slot] = _like(module, slot, top)
    _hook(module, slot, seat)
    if not seat.operators and not seat.observers:
        del seats(module)[slot]
    if not seats(module):
        del module.__dict__[SEATS]


def _hook(module: nn.Module, slot: str, seat: Seat) -> None:
    if seat.hook is not None:
        seat.hook.remove()
        seat.hook = None
    top = seat.top()
    if seat.observers and top is not None and slot != SLOT:  # swapped modules tell their observers themselves
        seat.hook = top.register_forward_pre_hook(partial(_tell, module, slot), with_kwargs=True)


def _tell(module: nn.Module, slot: str, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = dict(zip(("q", "k", "v", "mask"), args, strict=False)) | kwargs
    observe(module, slot, call["q"], call["k"], call["v"], checked(call["q"], call["k"], call["v"], call.get("mask")), operator)


def _like(module: nn.Module, slot: str, operator: Operator) -> Operator:
    """An operator that was out of sight may have missed a move to another device or type."""
    for name, parameter in module.named_parameters():
        if not name.startswith(f"{slot}.") and parameter.is_floating_point():
            return operator.to(device=parameter.device, dtype=parameter.dtype).train(module.training)
    return operator.train(module.training)


def observe(module: nn.Module, slot: str, q: Tensor, k: Tensor, v: Tensor, mask: Mask, operator: Operator | None) -> None:
    """Tell the observers of a seat, if there are any; compiled code is not watched."""
    if torch.compiler.is_compiling():
        return
    seat = module.__dict__.get(SEATS, {}).get(slot)
    if seat is not None:
        for watch in list(seat.observers.values()):
            watch(Seen(q, k, v, mask, operator))
