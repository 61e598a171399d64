"""Load what a function of the user's returns: the model, its batches, and how it is trained."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from eureka.errors import RequestError, UnknownNameError
from eureka.registry import find_named

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from eureka.forks.case import Loss, Step


@dataclass(frozen=True, kw_only=True)
class Given:
    """What ``module:function`` returned; the same names as the arguments of `eureka.diagnose` and `eureka.race`."""

    model: nn.Module
    batches: Iterable[Any]
    loss: Loss | None = None
    step: Step | None = None
    optimizer: Optimizer | None = None
    log: Any = None


def load_case(text: str) -> Given:
    """Call the function that ``module:function`` names; it returns a dict of model, batches, loss or step, and optimizer."""
    function = find_named(text, text, "function")
    if not callable(function):
        raise RequestError(f"{text} is a {type(function).__name__}; name a function that returns a dict.")
    try:
        found = function()
    except Exception as error:
        raise RequestError(f"{text}() failed with {type(error).__name__}: {error}") from error
    return _given(text, found)


def _given(text: str, found: Any) -> Given:
    names = [field.name for field in fields(Given)]
    if not isinstance(found, Mapping):
        raise RequestError(f"{text}() returns a {type(found).__name__}; it must return a dict with {', '.join(names)}.")
    for key in found:
        if key not in names:
            raise UnknownNameError(f"key in what {text}() returns", str(key), names)
    if missing := [name for name in ("model", "batches") if name not in found]:
        raise RequestError(f"what {text}() returns has no {' and no '.join(missing)}.")
    return Given(**found)
