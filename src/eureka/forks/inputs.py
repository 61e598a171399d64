"""What a model is called with, seen while it is trained."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn


class Inputs:
    """The arguments of the first call of a model."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._call: tuple[tuple[Any, ...], Mapping[str, Any]] | None = None

    def see(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A hook; the first call counts."""
        self._call = self._call or (args, dict(kwargs))

    def as_one(self) -> Any:
        """One tensor, or a mapping of all arguments by name; None if the model was not called itself."""
        if self._call is None:
            return None
        args, kwargs = self._call
        if len(args) == 1 and not kwargs:
            return args[0]
        signature = inspect.signature(self._model.forward)
        kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
        if args and inspect.Parameter.VAR_POSITIONAL in kinds:
            return None
        bound = signature.bind(*args, **kwargs).arguments
        more = bound.pop(kinds.get(inspect.Parameter.VAR_KEYWORD, ""), {})
        return {**bound, **more}


@contextmanager
def seen_inputs(model: nn.Module) -> Iterator[Inputs]:
    """While inside, keep what the model is first called with."""
    found = Inputs(model)
    handle = model.register_forward_pre_hook(found.see, with_kwargs=True)
    try:
        yield found
    finally:
        handle.remove()
