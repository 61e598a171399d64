"""Small models, each read in one sitting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.models.decoder import Decoder
    from eureka.models.encoder import Encoder, ViT
    from eureka.models.registry import MODELS
    from eureka.models.resnet import ResNet

__all__ = ["MODELS", "Decoder", "Encoder", "ResNet", "ViT"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "MODELS": "eureka.models.registry",
        "Decoder": "eureka.models.decoder",
        "ResNet": "eureka.models.resnet",
        **dict.fromkeys(["Encoder", "ViT"], "eureka.models.encoder"),
    },
)
