"""Copies of a model and its optimiser that belong together, also of a model that keeps a tensor of its last forward pass."""

from __future__ import annotations

import copy
import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from eureka.errors import RequestError

REGISTERED = ("_parameters", "_buffers", "_modules")
"""Attributes of a module that hold what it consists of."""


def deep_copies(model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
    """Copies that belong together, also with what an optimiser does not hand to `copy`, such as LBFGS's list of parameters."""
    memo: dict[int, Any] = {id(one): one.detach().clone() for one in computed_tensors(model)}
    try:
        new_model, new_optimizer = copy.deepcopy((model, optimizer), memo)
        for name, value in vars(optimizer).items():
            if name not in vars(new_optimizer) and not callable(value):
                setattr(new_optimizer, name, copy.deepcopy(value, memo))
    except Exception as error:
        of_a_tensor = isinstance(error, RuntimeError)  # torch's, which does not say whose
        where = f" because of its attribute {name}" if of_a_tensor and (name := _culprit(model)) else ""
        raise RequestError(f"{type(model).__name__} cannot be copied{where} ({type(error).__name__}: {error}).") from error
    return new_model, new_optimizer


def computed_tensors(model: nn.Module) -> Iterator[Tensor]:
    """Those that a model holds and that belong to a graph: an auxiliary loss, an activation. torch copies no such tensor."""
    seen: set[int] = set()
    waiting: deque[Any] = deque([model])
    while waiting:
        one = waiting.popleft()
        if id(one) in seen or isinstance(one, str | bytes | int | float | type | types.ModuleType | types.FunctionType | None):
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            if not one.is_leaf:
                yield one
        else:
            waiting.extend(_held_by(one))


def _held_by(one: Any) -> Iterable[Any]:
    """What is copied along with it."""
    if isinstance(one, types.MethodType):
        return (one.__self__,)
    if isinstance(one, functools.partial):
        return (one.func, *one.args, *one.keywords.values())
    members = one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple | set | frozenset | deque) else ()
    slots = {slot for kind in type(one).__mro__ for slot in _names(getattr(kind, "__slots__", ()))}
    return [*members, *getattr(one, "__dict__", {}).values(), *(getattr(one, slot, None) for slot in slots)]


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return [slots] if isinstance(slots, str) else [slot for slot in slots if not slot.startswith("__")]


def _culprit(model: nn.Module) -> str:
    """The attribute that cannot be copied."""
    memo = {id(one): one.detach() for one in computed_tensors(model)}
    for name, module in model.named_modules():
        for attribute, value in vars(module).items():
            if attribute not in REGISTERED:
                try:
                    copy.deepcopy(value, dict(memo))
                except Exception:
                    return f"{name}.{attribute}" if name else attribute
    return ""
