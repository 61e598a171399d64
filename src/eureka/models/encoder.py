"""A transformer that sees everything at once: the ViT of the paper at any size; on tokens, after RoBERTa."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from eureka.errors import RequestError
from eureka.models.transformer import MakeAttention, Positive, Rate, Ratio, Transformer


class Encoder(Transformer):
    """Answers once, from a class token or the mean of all tokens; or at every token, when the task asks that.

    RoBERTa is the encoder with ``post_norm``, ``qkv_bias`` and an ``mlp_ratio`` of 4.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        make_attention: MakeAttention,
        vocabulary: int | None = None,
        per_token: bool = False,
        *,
        dim: Positive = 64,
        depth: Positive = 2,
        heads: Positive = 2,
        mlp_ratio: Ratio = 2.0,
        patch: Positive | tuple[Positive, Positive] = 4,
        readout: Literal["cls", "mean"] = "cls",
        qkv_bias: bool = False,
        init_std: Ratio = 0.02,
        qk_init_scale: Ratio = 1.0,
        position_init_scale: Ratio = 1.0,
        post_norm: bool = False,
        drop_path: Rate = 0.0,
        tied: bool = False,
    ) -> None:
        super().__init__(
            input_shape,
            classes,
            make_attention,
            vocabulary,
            dim=dim,
            depth=depth,
            heads=heads,
            mlp_ratio=mlp_ratio,
            patch=patch,
            class_token=readout == "cls" and not per_token,
            qkv_bias=qkv_bias,
            post_norm=post_norm,
            drop_path=drop_path,
            tied=tied,
            init_std=init_std,
            qk_init_scale=qk_init_scale,
            position_init_scale=position_init_scale,
        )
        self.per_token = per_token

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.hidden(inputs)
        if not self.per_token:
            x = x.mean(dim=1) if self.cls is None else x[:, 0]
        return self.head(x)  # type: ignore[no-any-return]


class ViT(Encoder):
    """The encoder on pictures, by default the one of the paper: 3.75 M parameters on 56×56 RGB."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        make_attention: MakeAttention,
        *,
        dim: Positive = 256,
        depth: Positive = 7,
        heads: Positive = 4,
        mlp_ratio: Ratio = 2.0,
        patch: Positive | tuple[Positive, Positive] = 4,
        readout: Literal["cls", "mean"] = "cls",
        qkv_bias: bool = False,
        init_std: Ratio = 0.02,
        qk_init_scale: Ratio = 1.0,
        position_init_scale: Ratio = 1.0,
        drop_path: Rate = 0.1,
    ) -> None:
        if len(input_shape) != 3:
            raise RequestError(f"model 'vit' looks at pictures, not at inputs of shape {input_shape}; try model.name=encoder.")
        super().__init__(
            input_shape,
            classes,
            make_attention,
            dim=dim,
            depth=depth,
            heads=heads,
            mlp_ratio=mlp_ratio,
            patch=patch,
            readout=readout,
            qkv_bias=qkv_bias,
            init_std=init_std,
            qk_init_scale=qk_init_scale,
            position_init_scale=position_init_scale,
            drop_path=drop_path,
        )
