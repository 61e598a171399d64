"""Read from the bytecode of a class which functions its methods call, without running it."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

BINARY, MATMUL = dis.opmap["BINARY_OP"], (4, 17)
"""The instruction of binary operators, and its arguments for @ and @=."""
LIBRARIES = ("torch", "transformers", "numpy")
"""Packages whose functions are not followed: those that matter here are recognised by name."""


class Reading(NamedTuple):
    """The names that the methods of a class use."""

    methods: dict[str, frozenset[str]]
    """By method: every name that it or the functions it calls use."""
    functions: tuple[types.FunctionType, ...]
    """The methods and all functions that they reach."""

    def mentioning(self, *names: str) -> tuple[str, ...]:
        """The methods that use one of these names."""
        return tuple(method for method, used in self.methods.items() if used & set(names))


@cache
def read(cls: Any) -> Reading:
    """The names used by the methods of a class and by the functions of the same package that they call."""
    methods: dict[str, frozenset[str]] = {}
    functions: list[types.FunctionType] = []
    for name in _method_names(cls):
        seen: set[types.FunctionType] = set()
        for function in _reachable(cls, name):
            _follow(function, seen)
        methods[name] = frozenset(used for function in seen for used in names_in(function.__code__) | _aliases(function))
        functions += seen
    return Reading(methods, tuple(dict.fromkeys(functions)))


def global_names(cls: Any) -> list[tuple[dict[str, Any], str]]:
    """Every global name that the functions of a class use, with the namespace it is looked up in."""
    found = {(id(f.__globals__), name): (f.__globals__, name) for f in read(cls).functions for name in names_in(f.__code__)}
    return [place for place in found.values() if place[1] in place[0]]


def _method_names(cls: type) -> list[str]:
    return list(dict.fromkeys(name for base in _own_bases(cls) for name, value in vars(base).items() if _function(value)))


def _own_bases(cls: type) -> list[type]:
    """The classes of this model's own code, without the base classes of the frameworks."""
    return [b for b in cls.__mro__ if b is not object and not b.__module__.startswith(("torch.", "transformers.modeling_utils"))]


def _reachable(cls: type, name: str) -> Iterator[types.FunctionType]:
    """The method, and those of base classes that it reaches through super()."""
    for base in _own_bases(cls):
        function = _function(vars(base).get(name))
        if function is None:
            continue
        yield function
        if "super" not in names_in(function.__code__):
            return


def _function(value: Any) -> types.FunctionType | None:
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    value = inspect.unwrap(value) if callable(value) else value
    return value if isinstance(value, types.FunctionType) else None


def _follow(function: types.FunctionType, seen: set[types.FunctionType]) -> None:
    """Add to `seen` a function and those that it calls, through global names and closures."""
    if function in seen:
        return
    seen.add(function)
    used = names_in(function.__code__)
    for name in used:
        value = function.__globals__.get(name)
        found = [vars(value).get(other) for other in used] if isinstance(value, types.ModuleType) else [value]
        for helper in map(_function, found):
            if helper is not None and not _of_library(helper):
                _follow(helper, seen)
    for cell in function.__closure__ or ():
        try:
            helper = _function(cell.cell_contents)
        except ValueError:  # not filled yet
            continue
        if helper is not None and not _of_library(helper):
            _follow(helper, seen)


def _of_library(function: types.FunctionType) -> bool:
    return function.__module__.partition(".")[0] in LIBRARIES


def names_in(code: types.CodeType) -> set[str]:
    """The names that code uses, with that of @ as a function."""
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    own = {*code.co_names, "matmul"} if _has_matmul(code) else set(code.co_names)
    return own.union(*map(names_in, inner))


@cache
def _has_matmul(code: types.CodeType) -> bool:
    """Whether it has the operator @."""
    return any(step == BINARY and which in MATMUL for step, which in zip(code.co_code[::2], code.co_code[1::2], strict=True))


def _aliases(function: types.FunctionType) -> set[str]:
    """The real names of functions that were imported under another name."""
    values = (function.__globals__.get(name) for name in names_in(function.__code__))
    return {value.__name__ for value in values if isinstance(value, (types.BuiltinFunctionType, types.FunctionType))}
