"""What functions of a user hold besides their arguments, and how to put it back: counters, logs, averages, schedulers."""

from __future__ import annotations

import copy
import functools
import inspect
import sysconfig
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from eureka.errors import RequestError
from eureka.forks.generators import is_generator, restorer

MANY = 20_000
"""Objects that are looked at."""
WIDE = 4_096
"""The members of a longer list are not looked at, only the list itself is kept."""
MOST = 256 * 2**20
"""Bytes of tensors and arrays that are copied."""

Restore = Callable[[], object]


class Held:
    """Everything that some functions or data sets hold, kept; `put_back` makes it what it was.

    roots    functions, methods, objects
    except_  objects that are left alone, with all that they hold: the user's model, of which copies are handed over
    """

    def __init__(self, roots: Iterable[Any], except_: Iterable[Any] = ()) -> None:
        self._restore: list[Restore] = []
        self._room = MOST
        self._left = [*except_]  # they are kept alive, so that no other object gets their id
        self._seen = {id(one) for one in self._left}
        waiting = deque(roots)
        while waiting and len(self._seen) < MANY:
            one = waiting.popleft()
            if id(one) in self._seen or isinstance(one, str | bytes | int | float | complex | type | types.ModuleType | None):
                continue
            self._seen.add(id(one))
            self._left.append(one)
            waiting.extend(self._keep(one))

    def keep_class(self, cls: type) -> None:
        """Keep what a class holds besides its methods, such as a counter that all its objects share."""
        self._restore.append(functools.partial(_put_class, cls, dict(vars(cls))))

    @property
    def generators(self) -> list[Any]:
        """The generators of random numbers among them."""
        return [one for one in self._left if is_generator(one)]

    def put_back(self) -> None:
        for restore in self._restore:
            restore()

    def _keep(self, one: Any) -> Iterable[Any]:
        """Keep an object; what it holds in turn."""
        if isinstance(one, Tensor):
            return self._keep_tensor(one)
        if is_generator(one):
            self._restore.append(restorer(one))
        elif isinstance(one, types.FunctionType | types.MethodType | functools.partial):
            return self._keep_function(one)
        elif isinstance(one, list | set | deque | dict | bytearray):
            return self._keep_container(one)
        elif isinstance(one, tuple):
            return one[:WIDE]
        elif isinstance(one, DataLoader):
            return (one.dataset, one.sampler, one.batch_sampler, one.collate_fn, one.generator)
        elif isinstance(one, nn.Module) or _is_own(type(one)):
            return self._keep_attributes(one)
        elif isinstance(one, Optimizer) and any(id(each) in self._seen for group in one.param_groups for each in group["params"]):
            return ()  # the user's own in another guise
        elif all(callable(getattr(one, name, None)) for name in ("state_dict", "load_state_dict")):
            self._restore.append(functools.partial(one.load_state_dict, copy.deepcopy(one.state_dict())))
        elif hasattr(one, "__array_interface__") and hasattr(one, "copy"):
            self._keep_array(one)
        return ()

    def _keep_tensor(self, one: Tensor) -> Iterable[Any]:
        if isinstance(one, UninitializedParameter | UninitializedBuffer) or one.layout != torch.strided:
            return ()
        size = one.numel() * one.element_size()
        if size > self._room:
            self._restore.append(functools.partial(_refuse_change, one, one._version, one.grad))
            return () if one.grad is None else (one.grad,)
        self._room -= size
        self._restore.append(functools.partial(_put_tensor, one, one.detach().clone(), one.grad))
        return () if one.grad is None else (one.grad,)

    def _keep_array(self, one: Any) -> None:
        if one.nbytes <= self._room and one.flags.writeable:
            self._room -= one.nbytes
            self._restore.append(functools.partial(one.__setitem__, ..., one.copy()))

    def _keep_container(self, one: Any) -> Iterable[Any]:
        kept = one.copy()
        self._restore.append(functools.partial(_put_container, one, kept))
        members = kept.values() if isinstance(kept, dict) else kept
        return list(members) if len(kept) <= WIDE and not isinstance(one, bytearray) else ()

    def _keep_attributes(self, one: Any) -> Iterable[Any]:
        attributes = getattr(one, "__dict__", None)
        if not isinstance(attributes, dict):
            return ()
        self._restore.append(functools.partial(_put_container, attributes, dict(attributes)))
        return list(attributes.values())

    def _keep_function(self, one: Any) -> Iterable[Any]:
        if isinstance(one, types.MethodType):
            return (one.__self__, one.__func__)
        if isinstance(one, functools.partial):
            return (one.func, *one.args, *one.keywords.values())
        if not _is_own(one):
            return ()
        held: list[Any] = [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values(), getattr(one, "__wrapped__", None)]
        for cell in one.__closure__ or ():
            held += self._keep_cell(cell)
        for name in set(_names(one.__code__)) & one.__globals__.keys():
            value = one.__globals__[name]
            self._restore.append(functools.partial(_put_name, one.__globals__, name, value))
            held.append(value)
        return held

    def _keep_cell(self, cell: Any) -> list[Any]:
        try:
            value = cell.cell_contents
        except ValueError:  # not yet filled
            return []
        self._restore.append(functools.partial(setattr, cell, "cell_contents", value))
        return [value]


def functions_of(model: nn.Module) -> Iterator[Any]:
    """Yield the functions that a model keeps: its hooks, and those that are attributes or in lists and dicts of it."""
    for module in model.modules():
        for name, attribute in vars(module).items():
            members = attribute.values() if isinstance(attribute, dict) else attribute
            for value in members if isinstance(attribute, dict | list | tuple) else [attribute]:
                # Other objects are copied along with the model; what a function closes over is shared with the copies.
                if name.endswith("_hooks") or isinstance(value, types.FunctionType | types.MethodType | functools.partial):
                    yield value


def _is_own(one: Any) -> bool:
    """Whether a function or class is the user's own, not an installed package's, and not ours."""
    if (getattr(one, "__module__", None) or "").startswith("eureka."):
        return False
    try:
        file = inspect.getfile(one)
    except (TypeError, OSError):
        return getattr(one, "__module__", None) == "__main__"
    return not any(file.startswith(folder) for folder in _libraries())


@functools.cache
def _libraries() -> tuple[str, ...]:
    return tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


def _names(code: types.CodeType) -> Iterator[str]:
    """The names that a function and those inside it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _put_name(names: dict[str, Any], name: str, value: Any) -> None:
    if names.get(name) is not value:
        names[name] = value


def _put_class(cls: type, kept: dict[str, Any]) -> None:
    for name, value in kept.items():
        if vars(cls).get(name) is not value:
            setattr(cls, name, value)
    for name in vars(cls).keys() - kept.keys():
        delattr(cls, name)


def _put_container(one: Any, kept: Any) -> None:
    if isinstance(one, dict):
        if not _same_items(one, kept):
            one.clear()
            one.update(kept)
    elif isinstance(one, set):
        one.clear()
        one.update(kept)
    elif len(one) != len(kept) or any(a is not b for a, b in zip(one, kept, strict=True)):
        one.clear()
        one.extend(kept)


def _same_items(one: dict[Any, Any], kept: dict[Any, Any]) -> bool:
    return len(one) == len(kept) and all(a is b and one[a] is kept[b] for a, b in zip(one, kept, strict=True))


@torch.no_grad()
def _put_tensor(one: Tensor, kept: Tensor, gradient: Tensor | None) -> None:
    if not torch.equal(one, kept):
        one.copy_(kept)
    one.grad = gradient


def _refuse_change(one: Tensor, version: int, gradient: Tensor | None) -> None:
    one.grad = gradient
    if one._version != version:
        raise RequestError(
            f"the function that was given writes to a tensor of shape {tuple(one.shape)} that it holds, which is too large to be"
            " kept and put back: it is changed."
        )
