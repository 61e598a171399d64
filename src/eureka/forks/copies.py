"""Copies of a model and its optimiser that belong together, also of a model that keeps functions or computed tensors.

`copy.deepcopy` shares functions and weak references. A module with ``self.mlp = lambda x: m.c_proj(m.act(m.c_fc(x)))``, as in
minGPT, then has copies that run the layers of the original. `_Rebinding` gives each copy functions of its own.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from eureka.errors import RequestError

REGISTERED = ("_parameters", "_buffers", "_modules")
"""Attributes of a module that hold what it consists of."""
MAX_OBJECTS = 20_000
"""Objects that are searched for the model, from one function. A function that holds more, such as a data set, stays shared."""
MAX_MEMBERS = 4_096
"""The members of a longer list, dict or set in a closure are not searched for the model."""
_CONTAINERS = (list, tuple, set, frozenset, deque)
_ATOMIC = (str, bytes, int, float, type, types.ModuleType, type(None))
"""What refers to no model; also classes and Python modules, whose names everybody shares."""


def deep_copies(model: nn.Module, optimizer: Optimizer) -> tuple[nn.Module, Optimizer]:
    """Copies that belong together, also with what an optimiser does not hand to `copy`, such as LBFGS's list of parameters."""
    memo: dict[int, Any] = {id(one): one.detach().clone() for one in computed_tensors(model)}
    try:
        new_model, new_optimizer = copy.deepcopy((model, optimizer), memo)
        for name, value in vars(optimizer).items():
            # A scheduler puts its own `step` over the one of the class: it counts the user's steps, not those of a copy.
            if name not in vars(new_optimizer) and not (callable(value) and hasattr(type(optimizer), name)):
                setattr(new_optimizer, name, copy.deepcopy(value, memo))
        _copy_gradient_hooks(model, new_model)
        _Rebinding(memo).rebind([new_model, new_optimizer])
    except _UncopiedError as error:
        raise RequestError(f"{type(model).__name__} cannot be copied {error}.") from error
    except Exception as error:
        of_a_tensor = isinstance(error, RuntimeError)  # torch's, which does not say whose
        where = f" because of its attribute {name}" if of_a_tensor and (name := _culprit(model)) else ""
        raise RequestError(f"{type(model).__name__} cannot be copied{where} ({type(error).__name__}: {error}).") from error
    return new_model, new_optimizer


def _copy_gradient_hooks(model: nn.Module, copied: nn.Module) -> None:
    """What `parameter.register_hook` was given changes each gradient; torch leaves it out of copies."""
    for one, other in zip(model.parameters(), copied.parameters(), strict=True):
        for hook in (getattr(one, "_backward_hooks", None) or {}).values():
            if other.requires_grad:
                other.register_hook(hook)  # type: ignore[no-untyped-call]


def computed_tensors(model: Any) -> Iterator[Tensor]:
    """Those that a model holds and that belong to a graph: an auxiliary loss, an activation. torch copies no such tensor."""
    seen: set[int] = set()
    waiting: deque[Any] = deque([model])
    while waiting:
        one = waiting.popleft()
        if id(one) in seen or isinstance(one, (*_ATOMIC, types.FunctionType)):
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            if not one.is_leaf:
                yield one
        else:
            waiting.extend(referents(one))


def referents(value: Any) -> list[Any]:
    """Return what an object refers to: members, attributes, and what a function closes over or has as defaults."""
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if not _is_empty(cell)]
        return [*cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values(), *vars(value).values()]
    if isinstance(value, types.MethodType):
        return [value.__self__, value.__func__]
    attributes = [*getattr(value, "__dict__", {}).values(), *(getattr(value, slot, None) for slot in _slots(value))]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values(), *attributes]
    members = value.values() if isinstance(value, dict) else value if isinstance(value, _CONTAINERS) else ()
    return [*members, *attributes]


def _is_empty(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return True
    return False


def _slots(value: Any) -> list[str]:
    """Return the attributes of an object that are not in its `__dict__`."""
    names: list[str] = []
    for kind in type(value).__mro__:
        slots = getattr(kind, "__slots__", ())
        names += [slot for slot in ([slots] if isinstance(slots, str) else slots) if not slot.startswith("__")]
    return names


class _UncopiedError(Exception):
    """What a function refers to cannot be copied; the text says which function, and why."""


class _Rebinding:
    """Gives copies functions that refer to the copies, in place of those that refer to the originals.

    memo   of the `copy.deepcopy` that has produced the copies: from the id of an original to its copy

    A function that refers to nothing that was copied stays shared, and so does such a cell, for example one that counts calls.
    """

    def __init__(self, memo: dict[int, Any]) -> None:
        self._memo = memo
        self._copies: set[int] = set()
        self._memo_size = 0  # when `_copies` was computed
        self._functions: dict[int, types.FunctionType] = {}
        self._cells: dict[int, types.CellType] = {}
        self._unrelated: set[int] = set()
        self._alive: list[Any] = []  # objects whose ids are in the sets above: no other object may get their id
        self._visited: set[int] = set()
        self._waiting: deque[Any] = deque()

    def rebind(self, copies: Iterable[Any]) -> None:
        """Replace the functions of these copies, and of everything that was copied along with them."""
        self._waiting.extend(copies)
        while self._waiting:
            value = self._waiting.popleft()
            if id(value) not in self._visited and self._is_copy(value):
                self._visited.add(id(value))
                self._rebind_in(value)

    def _is_copy(self, value: Any) -> bool:
        """Return whether an object may be changed. A user's `__deepcopy__` may enter an original in the memo as its own copy."""
        if len(self._memo) != self._memo_size:
            self._copies = {id(clone) for original, clone in self._memo.items() if original != id(clone)}
            self._memo_size = len(self._memo)
        return id(value) in self._copies

    def _rebind_in(self, value: Any) -> None:
        """Replace the functions that a copy refers to, in place."""
        if isinstance(value, Tensor):
            return
        if isinstance(value, functools.partial):
            keywords = {name: self._rebound(argument) for name, argument in value.keywords.items()}
            state = self._rebound(value.func), self._rebound(value.args), keywords, value.__dict__
            value.__setstate__(state)  # type: ignore[attr-defined]
        if isinstance(value, dict):
            self._rebind_values(value)
        elif isinstance(value, list | deque):
            for index, member in enumerate(value):
                if (rebound := self._rebound(member)) is not member:
                    value[index] = rebound
        elif isinstance(value, set):
            members = [*value]
            if _differ(rebound_members := [self._rebound(member) for member in members], members):
                value.clear()
                value.update(rebound_members)
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._rebind_values(attributes)
        for slot in _slots(value):
            content = getattr(value, slot, None)
            if (rebound := self._rebound(content)) is not content:
                object.__setattr__(value, slot, rebound)  # a frozen dataclass allows no other way

    def _rebind_values(self, values: dict[Any, Any]) -> None:
        for name, value in values.items():
            if (rebound := self._rebound(value)) is not value:
                values[name] = rebound

    def _rebound(self, value: Any) -> Any:
        """Return what takes the place of a value in a copy: the value itself, unless it refers to an original."""
        if isinstance(value, types.FunctionType):
            return self._copy_function(value) if self._is_related(value) else value
        if isinstance(value, types.MethodType):  # deepcopy has copied its object, but not its function
            function, owner = self._rebound(value.__func__), self._rebound(value.__self__)
            return types.MethodType(function, owner) if function is not value.__func__ else value
        if type(value) is weakref.ref and value.__callback__ is None:
            target = value()
            return weakref.ref(self._memo[id(target)]) if self._was_copied(target) else value
        if isinstance(value, tuple):
            members = [self._rebound(member) for member in value]
            if not _differ(members, value):
                return value
            return value._make(members) if hasattr(value, "_make") else type(value)(members)
        self._waiting.append(value)
        return value

    def _copy_function(self, function: types.FunctionType) -> types.FunctionType:
        """Return the only copy of a function. It is registered before its cells are filled, as it may close over itself."""
        if id(function) in self._functions:
            return self._functions[id(function)]
        closure: list[types.CellType] = []
        unfilled: list[tuple[types.CellType, Any, str]] = []
        for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
            if _is_empty(cell) or not self._is_related(cell.cell_contents):
                closure.append(cell)
                continue
            if id(cell) not in self._cells:
                self._cells[id(cell)] = types.CellType()
                unfilled.append((self._cells[id(cell)], cell.cell_contents, name))
            closure.append(self._cells[id(cell)])
        clone = types.FunctionType(function.__code__, function.__globals__, function.__name__, None, tuple(closure) or None)
        self._functions[id(function)] = clone
        self._alive.append(function)
        clone.__qualname__, clone.__module__, clone.__doc__ = function.__qualname__, function.__module__, function.__doc__
        clone.__annotations__ = function.__annotations__
        whose = f"its function {function.__name__}"
        for new_cell, content, name in unfilled:
            new_cell.cell_contents = self._counterpart(content, f"the variable {name} in {whose}")
        if function.__defaults__ is not None:
            clone.__defaults__ = tuple(self._counterpart(value, whose) for value in function.__defaults__)
        if function.__kwdefaults__ is not None:
            clone.__kwdefaults__ = {name: self._counterpart(value, whose) for name, value in function.__kwdefaults__.items()}
        for name, value in vars(function).items():  # functools.wraps leaves `__wrapped__` here
            clone.__dict__[name] = self._counterpart(value, whose)
        return clone

    def _counterpart(self, original: Any, whose: str) -> Any:
        """Return what a copied function refers to in place of an original: itself, if it is not related to the copies."""
        if not self._is_related(original):
            return original
        if id(original) not in self._memo:
            self._alive.append(original)
            try:
                computed = {id(tensor): tensor.detach().clone() for tensor in computed_tensors(original)}
                self._memo.update({key: clone for key, clone in computed.items() if key not in self._memo})
                self._memo[id(original)] = self._copied(original, whose)
            except _UncopiedError:
                raise
            except Exception as error:
                raise _UncopiedError(f"because of {whose} ({type(error).__name__}: {error})") from error
        return self._rebound(self._memo[id(original)])

    def _copied(self, original: Any, whose: str) -> Any:
        """Return a deep copy; of an object that wraps a function, member by member."""
        attributes = getattr(original, "__dict__", {})
        if "__wrapped__" not in attributes or isinstance(original, types.FunctionType | functools.partial | nn.Module):
            return copy.deepcopy(original, self._memo)
        # functools.update_wrapper on an object with __call__: accelerate's refuses to be pickled, so deepcopy fails on it.
        clone = object.__new__(type(original))
        self._memo[id(original)] = clone
        clone.__dict__.update({name: self._counterpart(value, whose) for name, value in attributes.items()})
        return clone

    def _was_copied(self, original: Any) -> bool:
        return id(original) in self._memo and self._memo[id(original)] is not original

    def _is_related(self, original: Any) -> bool:
        """Return whether an original was copied, or refers to one that was, also through other functions."""
        visited: dict[int, Any] = {}
        waiting = deque([original])
        while waiting and len(visited) < MAX_OBJECTS:
            value = waiting.popleft()
            if isinstance(value, _ATOMIC) or id(value) in visited or id(value) in self._unrelated:
                continue
            if self._was_copied(value) or id(value) in self._functions:
                return True
            visited[id(value)] = value
            if isinstance(value, weakref.ref):
                waiting.append(value())
            elif not isinstance(value, Tensor) and not (isinstance(value, (dict, *_CONTAINERS)) and len(value) > MAX_MEMBERS):
                waiting.extend(referents(value))
        self._unrelated.update(visited)
        self._alive.extend(visited.values())
        return False


def _differ(values: Iterable[Any], others: Iterable[Any]) -> bool:
    return any(value is not other for value, other in zip(values, others, strict=True))


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
