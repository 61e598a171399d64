"""Watching somebody's training from inside: Hugging Face's Trainer, Lightning's, or any loop.

`HuggingFaceCallback` and `LightningCallback` need the package they are for; `Monitor` needs none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.integrations.hugging_face import HuggingFaceCallback
    from eureka.integrations.lightning import LightningCallback
    from eureka.integrations.monitor import Monitor

__all__ = ["HuggingFaceCallback", "LightningCallback", "Monitor"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "HuggingFaceCallback": "eureka.integrations.hugging_face",
        "LightningCallback": "eureka.integrations.lightning",
        "Monitor": "eureka.integrations.monitor",
    },
)
