"""A transformer in which no token sees what comes after it, after GPT-2."""

from __future__ import annotations

from torch import Tensor

from eureka.attention import Causal
from eureka.models.transformer import MakeAttention, Positive, Rate, Ratio, Transformer


class Decoder(Transformer):
    """Answers at every token, or at the last one when the task asks for one answer. GPT-2 also ties head and embedding."""

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
        mlp_ratio: Ratio = 4.0,
        patch: Positive | tuple[Positive, Positive] = 4,
        qkv_bias: bool = True,
        init_std: Ratio = 0.02,
        qk_init_scale: Ratio = 1.0,
        position_init_scale: Ratio = 1.0,
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
            class_token=False,
            qkv_bias=qkv_bias,
            post_norm=False,
            drop_path=drop_path,
            tied=tied,
            init_std=init_std,
            qk_init_scale=qk_init_scale,
            position_init_scale=position_init_scale,
        )
        self.per_token = per_token

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.hidden(inputs, Causal())
        return self.head(x if self.per_token else x[:, -1])  # type: ignore[no-any-return]
