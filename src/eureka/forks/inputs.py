"""What a model is called with on a batch, by watching the user's own loss or step."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from eureka.forks.case import Case, Fork, seeded


class _CalledError(Exception):
    """The model was called; nothing more needs to be computed."""


def inputs_of(case: Case, fork: Fork) -> Any:
    """What the model is given on the first batch: one tensor, or a mapping of all arguments; None if it is not called itself.

    The forward pass is not carried out, so nothing changes.
    """
    found: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def look(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        found.append((args, kwargs))
        raise _CalledError

    handle = fork.model.register_forward_pre_hook(look, with_kwargs=True, prepend=True)
    try:
        with seeded(), torch.no_grad():
            if case.loss is None:
                case.train(fork, case.batches[0])
            else:
                case.loss_of(fork.model, case.batches[0])
    except _CalledError:
        pass
    finally:
        handle.remove()
    return _as_one(fork.model, *found[0]) if found else None


def _as_one(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) == 1 and not kwargs:
        return args[0]
    signature = inspect.signature(model.forward)
    kinds = {parameter.kind: name for name, parameter in signature.parameters.items()}
    if args and inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    bound = signature.bind(*args, **kwargs).arguments
    more = bound.pop(kinds.get(inspect.Parameter.VAR_KEYWORD, ""), {})
    return {**bound, **more}
