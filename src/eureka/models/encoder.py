"""A transformer that sees everything at once: the ViT of the paper at any size; on tokens, after RoBERTa."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt
from torch import Tensor

from eureka.errors import RequestError
from eureka.models.transformer import Depth, DropRate, MakeAttention, Transformer, TransformerSettings


class EncoderSettings(TransformerSettings):
    """RoBERTa is the encoder with ``post_norm``, ``qkv_bias`` and an ``mlp_ratio`` of 4."""

    readout: Literal["cls", "mean"] = "cls"
    post_norm: bool = False


class Encoder(Transformer):
    """Answers once, from a class token or the mean of all tokens; or at every token, when the task asks that."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        make_attention: MakeAttention,
        vocabulary: int | None = None,
        per_token: bool = False,
        *,
        settings: EncoderSettings,
    ) -> None:
        class_token = settings.readout == "cls" and not per_token
        super().__init__(
            input_shape, classes, make_attention, vocabulary, settings, class_token=class_token, post_norm=settings.post_norm
        )
        self.per_token = per_token

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.hidden(inputs)
        if not self.per_token:
            x = x.mean(dim=1) if self.cls is None else x[:, 0]
        return self.head(x)  # type: ignore[no-any-return]


class ViTSettings(EncoderSettings):
    """By default the model of the paper: 3.75 M parameters on 56×56 RGB."""

    dim: PositiveInt = 256
    depth: Depth = 7
    heads: PositiveInt = 4
    drop_path: DropRate = 0.1


class ViT(Encoder):
    """The encoder on pictures, with other defaults."""

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, make_attention: MakeAttention, *, settings: ViTSettings
    ) -> None:
        if len(input_shape) != 3:
            raise RequestError(f"model 'vit' looks at pictures, not at inputs of shape {input_shape}; try model.name=encoder.")
        super().__init__(input_shape, classes, make_attention, settings=settings)
