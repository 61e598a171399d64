"""Callbacks that report plateaus, Eureka-moments and attention during training.

`HuggingFaceCallback` and `LightningCallback` need the package they are for, so each is imported when it is asked for; `Monitor`
is for any loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eureka.integrations.hugging_face import HuggingFaceCallback
    from eureka.integrations.lightning import LightningCallback
    from eureka.integrations.monitor import Monitor

__all__ = ["HuggingFaceCallback", "LightningCallback", "Monitor"]

MODULES = {"HuggingFaceCallback": "hugging_face", "LightningCallback": "lightning", "Monitor": "monitor"}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
