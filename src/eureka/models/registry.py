"""The models by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.registry import Entry, Registry

if TYPE_CHECKING:
    from torch import nn

MODELS: Registry[nn.Module] = Registry(
    "model",
    [
        Entry(
            name="encoder",
            target="eureka.models.encoder:Encoder",
            summary="transformer that sees everything: on patches, features or tokens; one answer or one at every token",
            source="Dosovitskiy et al. 2021; Liu et al. 2019",
        ),
        Entry(
            name="vit",
            target="eureka.models.encoder:ViT",
            summary="the encoder on pictures, by default the one of the paper: 3.75 M parameters",
            source="Hoffmann et al. 2024",
        ),
        Entry(
            name="decoder",
            target="eureka.models.decoder:Decoder",
            summary="causal transformer: no token sees what comes after it",
            source="Radford et al. 2019",
        ),
        Entry(
            name="hf_roberta",
            target="eureka.models.hugging_face:Roberta",
            summary="RoBERTa of transformers from a small random config, patched",
            source="Liu et al. 2019",
        ),
        Entry(
            name="hf_gpt2",
            target="eureka.models.hugging_face:GPT2",
            summary="GPT-2 of transformers from a small random config, patched",
            source="Radford et al. 2019",
        ),
        Entry(
            name="resnet9",
            target="eureka.models.resnet:ResNet",
            summary="convolutional network with one block a stage; no attention, no plateau",
            source="He et al. 2016",
            preset={"blocks": 1},
        ),
        Entry(
            name="resnet18",
            target="eureka.models.resnet:ResNet",
            summary="convolutional network with two blocks a stage",
            source="He et al. 2016",
            preset={"blocks": 2},
        ),
    ],
    base="torch.nn:Module",
    group="eureka.models",
)
