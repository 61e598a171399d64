"""Swapping the class of a module: the same object, the same name, another way to attend.

Nothing global is changed, so other models, other threads and copies are left alone; undoing gives the class back.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import nn

BASE = "_eureka_base"


@cache
def swapped_class(base: Any, mixin: Any, methods: tuple[str, ...] = ()) -> type[nn.Module]:
    """A subclass of `base` that attends as `mixin` says; `methods` are those that the mixin has to wrap."""
    if hasattr(mixin, "prepare"):  # in every process that makes the class, also by unpickling
        mixin.prepare()
    wrapped = {name: mixin.wrap(name) for name in methods}

    def __reduce_ex__(self: Any, protocol: Any) -> Any:  # noqa: ARG001 - pickle and copy pass it
        return _empty, (base, mixin, methods), self.__getstate__()

    body = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__, BASE: base}
    return type(base.__name__, (mixin, base), {**body, "__reduce_ex__": __reduce_ex__, **wrapped})


def _empty(base: Any, mixin: Any, methods: tuple[str, ...]) -> nn.Module:
    """For copy and pickle, which fill it: the class cannot be imported by its name."""
    cls = swapped_class(base, mixin, methods)
    return cls.__new__(cls)


def base_class(module: nn.Module) -> Any:
    """The class a module had before it was swapped."""
    return getattr(type(module), BASE, type(module))
