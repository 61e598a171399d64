"""The models by name."""

from __future__ import annotations

from eureka.registry import Entry, Registry

MODELS = Registry(
    "model",
    [
        Entry(
            name="encoder",
            target="eureka.models.encoder:Encoder",
            summary="pre-norm transformer encoder on patches or features, class token or mean read-out",
            source="Dosovitskiy et al. 2021",
        ),
    ],
)
