"""What a patched module carries: another class, and for each operator a slot. Nothing global is changed.

Other models, other threads and copies are therefore left alone, and a deep copy or a pickle of a patched model is a patched
model with operators of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from eureka.attention.checks import checked
from eureka.attention.mask import Mask
from eureka.attention.operator import Operator

LOCK = threading.RLock()
"""Held while a model is searched or changed: threads that patch and undo one model wait for each other."""
SUBMODULE = "eureka_operator"
"""The name of the submodule that holds the operator of a swapped module."""
SLOTS = "_eureka_slots"
"""The attribute of a module that holds its slots."""
BASE = "_eureka_base"
"""The attribute of a swapped class that holds the class before the swap."""


class AttentionCall(NamedTuple):
    """The arguments of one attention call, as observers get them.

    q is in the scale of the operators, where plain softmax divides q·k by √d, whatever the scale of the model.
    """

    q: Tensor
    k: Tensor
    v: Tensor | None
    """None where attention is written out and the product with v could not be followed."""
    mask: Mask
    operator: Operator | None
    """None if the model used its own attention."""

    @property
    def value_heads(self) -> int:
        """How many value heads there are; as many as key heads where v was not seen."""
        return (self.k if self.v is None else self.v).shape[1]


Observer = Callable[[AttentionCall], None]


@dataclass
class OperatorSlot:
    """The stack of operators and the observers of one site; each belongs to an owner, named by a token."""

    original: Operator | None = None
    """The model's own operator, if it has one there."""
    operators: list[tuple[str, Operator]] = field(default_factory=list)
    """The last one is in force."""
    observers: dict[str, Observer] = field(default_factory=dict)
    check: Any = None
    """The `SelfCheck` that the next call does."""
    heads: int | None = None
    """How many heads the module says it has, or the one around it."""
    hook: Any = None
    """The forward hook that reports the calls of an operator which is the model's own submodule."""

    def top(self) -> Operator | None:
        """The operator in force."""
        return self.operators[-1][1] if self.operators else self.original

    def remove(self, owner: str | None) -> None:
        """Remove what an owner has put here, or everything."""
        self.operators = [entry for entry in self.operators if owner is not None and entry[0] != owner]
        self.observers = {key: observer for key, observer in self.observers.items() if owner is not None and key != owner}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "observers": {}, "hook": None, "check": None}  # copies of a model are not observed


def slots(module: nn.Module) -> dict[str, OperatorSlot]:
    """The slots of a module by the name of the submodule that they fill."""
    found: dict[str, OperatorSlot] = module.__dict__.setdefault(SLOTS, {})
    return found


def find_slot(module: nn.Module, name: str) -> OperatorSlot | None:
    """The slot of a submodule, if there is one."""
    found: OperatorSlot | None = module.__dict__.get(SLOTS, {}).get(name)
    return found


def update_submodule(module: nn.Module, name: str) -> None:
    """Make the submodule the operator in force, and drop the slot if it is empty."""
    slot = slots(module)[name]
    top = slot.top()
    if top is None:
        module._modules.pop(name, None)
    else:
        module._modules[name] = _like(module, name, top)
    _update_hook(module, name, slot)
    if not slot.operators and not slot.observers:
        del slots(module)[name]
    if not slots(module):
        del module.__dict__[SLOTS]


def _update_hook(module: nn.Module, name: str, slot: OperatorSlot) -> None:
    if slot.hook is not None:
        slot.hook.remove()
        slot.hook = None
    top = slot.top()
    if slot.observers and top is not None and name != SUBMODULE:  # swapped modules call `observe` themselves
        slot.hook = top.register_forward_pre_hook(partial(_observe_forward, module, name), with_kwargs=True)


def _observe_forward(module: nn.Module, name: str, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    call = dict(zip(("q", "k", "v", "mask"), args, strict=False)) | kwargs
    observe(module, name, call["q"], call["k"], call["v"], checked(call["q"], call["k"], call["v"], call.get("mask")), operator)


def _like(module: nn.Module, name: str, operator: Operator) -> Operator:
    """An operator below the top of the stack is no submodule, so it misses moves to another device or type."""
    for key, parameter in module.named_parameters():
        if not key.startswith(f"{name}.") and parameter.is_floating_point():
            return operator.to(device=parameter.device, dtype=parameter.dtype).train(module.training)
    return operator.train(module.training)


def observe(module: nn.Module, name: str, q: Tensor, k: Tensor, v: Tensor | None, mask: Mask, operator: Operator | None) -> None:
    """Report a call to the observers of a slot, if the operator can take it; compiled code is not observed."""
    if operator is not None:
        operator.check_mask(mask, q.shape[2], k.shape[2])
    if torch.compiler.is_compiling():
        return
    slot = find_slot(module, name)
    if slot is not None:
        for observer in list(slot.observers.values()):
            observer(AttentionCall(q, k, v, mask, operator))


@cache
def swapped_class(base: Any, mixin: Any, methods: tuple[str, ...] = ()) -> type[nn.Module]:
    """A subclass of `base` with the same name that attends as `mixin` does; `methods` are those that the mixin wraps."""
    if hasattr(mixin, "prepare"):  # in every process that makes the class, also by unpickling
        mixin.prepare()
    wrapped = {name: mixin.wrap(name) for name in methods}

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: ARG001, N807 - pickle and copy call it and pass `protocol`
        return _empty, (base, mixin, methods), self.__getstate__()

    body = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__, BASE: base}
    return type(base.__name__, (mixin, base), {**body, "__reduce_ex__": __reduce_ex__, **wrapped})


def _empty(base: Any, mixin: Any, methods: tuple[str, ...]) -> nn.Module:
    """An instance for copy and pickle to fill: they cannot import the class by its name."""
    cls = swapped_class(base, mixin, methods)
    return cls.__new__(cls)


def base_class(module: nn.Module) -> Any:
    """The class of a module before it was swapped."""
    return getattr(type(module), BASE, type(module))
