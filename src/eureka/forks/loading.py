"""Load what a function of the user's returns: the model, its batches, and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from eureka.errors import RequestError, UnknownNameError, own_line
from eureka.forks.setup import Setup, hand_over, is_trainer
from eureka.registry import find_named

NAMES = tuple(field.name for field in fields(Setup) if field.name in ("model", "batches", "loss", "step", "optimizer", "log"))


def load_case(text: str) -> Setup:
    """Call the function that ``module:function`` names.

    It returns a dict with model, batches, loss or step, optimizer and log; an object with these attributes; or a trainer.
    """
    function = find_named(text, text, "function")
    if not callable(function):
        raise RequestError(f"{text} is a {type(function).__name__}; name a function that returns a dict.")
    try:
        found = function()
    except Exception as error:
        raise RequestError(f"{text}() failed{own_line(error)} with {type(error).__name__}: {error}") from error
    arguments = _arguments(text, found)
    if not arguments:
        raise RequestError(f"{text}() returns a {type(found).__name__}; it must return a dict with {', '.join(NAMES)}.")
    if "model" not in arguments:
        missing = [name for name in ("model", "batches") if name not in arguments]
        raise RequestError(f"what {text}() returns has no {' and no '.join(missing)}.")
    return hand_over(**arguments)


def _arguments(text: str, found: Any) -> dict[str, Any]:
    """A trainer is handed over as it is; of any other object, the attributes with these names."""
    if is_trainer(found):
        return {"model": found}
    if not isinstance(found, Mapping):
        found = {name: getattr(found, name) for name in NAMES if hasattr(found, name)}
    for key in found:
        if key not in NAMES:
            raise UnknownNameError(f"key in what {text}() returns", str(key), NAMES)
    return dict(found)
