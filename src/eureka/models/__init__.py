"""Small models, each read in one sitting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.models.encoder import Encoder
    from eureka.models.registry import MODELS

__all__ = ["MODELS", "Encoder"]

__getattr__, __dir__ = lazy(__name__, {"MODELS": "eureka.models.registry", "Encoder": "eureka.models.encoder"})
