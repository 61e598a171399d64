"""What the encoder and the decoder share: everything but what they look at and where they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from eureka.attention.mask import Mask
from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.models.block import EPS, Block
from eureka.models.embedding import TokenEmbedding, embedding
from eureka.models.start import Start

DropRate = Annotated[float, Field(ge=0, lt=1)]
Depth = Annotated[int, Field(gt=0, le=1000)]
"""Blocks; a thousand is more than any transformer has."""
MakeAttention = Callable[[int, int], Operator]
"""Called once for each block with the number of heads and the head dimension."""


class Sizes(BaseModel):
    """How large a transformer is, and how it starts; `experiment.build` carries the start out, which needs a batch."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dim: PositiveInt = 64
    depth: Depth = 2
    heads: PositiveInt = 2
    mlp_ratio: PositiveFloat = 2.0
    start: Start = "paper"

    @model_validator(mode="after")
    def _heads_divide_dim(self) -> Sizes:
        if self.dim % self.heads:
            raise ValueError(f"model.dim ({self.dim}) must be a multiple of model.heads ({self.heads})")
        return self


class TransformerSettings(Sizes):
    """The settings that all transformers here share."""

    patch: PositiveInt | tuple[PositiveInt, PositiveInt] = 4
    qkv_bias: bool = False
    init_std: PositiveFloat = 0.02
    qk_init_scale: PositiveFloat = 1.0
    position_init_scale: PositiveFloat = 1.0
    drop_path: DropRate = 0.0
    tied: bool = False


class Transformer(nn.Module):
    """Embedding, learned positions, blocks, a norm (after the blocks, or before them when these are post-norm), a linear head."""

    undecayed = frozenset({"positions", "cls"})
    """parameters that weight decay must leave alone although they are matrices"""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        make_attention: MakeAttention,
        vocabulary: int | None,
        settings: TransformerSettings,
        *,
        class_token: bool = False,
        post_norm: bool = False,
    ) -> None:
        super().__init__()
        dim, heads = settings.dim, settings.heads
        self.post_norm = post_norm
        self.embed = embedding(input_shape, settings.patch, dim, vocabulary)
        self.cls = nn.Parameter(torch.empty(1, 1, dim)) if class_token else None
        self.positions = nn.Parameter(torch.empty(1, self.embed.tokens + class_token, dim))
        rates = torch.linspace(0, settings.drop_path, settings.depth).tolist()  # deeper blocks are dropped more often
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                make_attention(heads, dim // heads),
                mlp_ratio=settings.mlp_ratio,
                qkv_bias=settings.qkv_bias,
                post_norm=post_norm,
                drop_path=rate,
            )
            for rate in rates
        )
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.head = nn.Linear(dim, classes, bias=not settings.tied)
        self._initialise(settings.init_std)
        with torch.no_grad():
            self.positions.mul_(settings.position_init_scale)
        self._sharpen(settings.qk_init_scale)
        if settings.tied:
            self._tie(classes, vocabulary)
        self._answers_tokens = classes == vocabulary

    def get_input_embeddings(self) -> nn.Embedding | None:
        """W_E, a row for each token, named as in transformers; None where inputs are no tokens."""
        return self.embed.table if isinstance(self.embed, TokenEmbedding) else None

    def get_output_embeddings(self) -> nn.Linear | None:
        """W_U, a row for each token; None where answers are no tokens."""
        return self.head if self._answers_tokens else None

    def _initialise(self, std: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.trunc_normal_(module.weight, std=std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for parameter in (self.positions, self.cls):
            if parameter is not None:
                nn.init.trunc_normal_(parameter, std=std)

    def _sharpen(self, scale: float) -> None:
        """Start with logits `scale` times as large: W_Q and W_K by its root each."""
        with torch.no_grad():
            for block in self.blocks:
                assert isinstance(block, Block)
                weight = block.attention.qkv.weight
                weight[: 2 * len(weight) // 3] *= scale**0.5

    def _tie(self, classes: int, vocabulary: int | None) -> None:
        if not isinstance(self.embed, TokenEmbedding) or classes != vocabulary:
            raise RequestError(f"model.tied needs a task whose classes ({classes}) are its tokens ({vocabulary or 'none'}).")
        self.head.weight = self.embed.table.weight

    def hidden(self, inputs: Tensor, mask: Mask | None = None) -> Tensor:
        """The representation of every token, (B, N, dim), the class token first if there is one."""
        x = self.embed(inputs)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        x = x + self.positions
        if self.post_norm:
            x = self.norm(x)
        for block in self.blocks:
            x = block(x, mask)
        return x if self.post_norm else self.norm(x)  # type: ignore[no-any-return]
