"""A transformer in which no token sees what comes after it, after GPT-2."""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from eureka.attention.mask import Causal
from eureka.attention.operator import Operator
from eureka.models.transformer import MakeAttention, Transformer, TransformerSettings


class DecoderSettings(TransformerSettings):
    """GPT-2 also ties head and embedding."""

    mlp_ratio: PositiveFloat = 4.0
    qkv_bias: bool = True


class Decoder(Transformer):
    """Answers at every token, or at the last one when the task asks for one answer."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        make_attention: MakeAttention,
        vocabulary: int | None = None,
        per_token: bool = False,
        *,
        settings: DecoderSettings,
    ) -> None:
        super().__init__(input_shape, classes, make_attention, vocabulary, settings)
        self.per_token = per_token
        for operator in (module for module in self.modules() if isinstance(module, Operator)):
            operator.check_mask(Causal(), queries=2, keys=2)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.hidden(inputs, Causal())
        return self.head(x if self.per_token else x[:, -1])  # type: ignore[no-any-return]
