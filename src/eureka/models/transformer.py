"""What the encoder and the decoder share: everything but what they look at and where they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from eureka.attention import Mask, Operator
from eureka.errors import RequestError
from eureka.models.block import EPS, Block
from eureka.models.embedding import TokenEmbedding, embedding

Positive = Annotated[int, Field(ge=1)]
Ratio = Annotated[float, Field(gt=0)]
Rate = Annotated[float, Field(ge=0, lt=1)]
MakeAttention = Callable[[int, int], Operator]
"""Called once for each block with the number of heads and the head dimension."""


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
        *,
        dim: int,
        depth: int,
        heads: int,
        mlp_ratio: float,
        patch: int | tuple[int, int],
        class_token: bool,
        qkv_bias: bool,
        post_norm: bool,
        drop_path: float,
        tied: bool,
        init_std: float,
        qk_init_scale: float,
        position_init_scale: float,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise RequestError(f"model.dim ({dim}) must be a multiple of model.heads ({heads}).")
        self.post_norm = post_norm
        self.embed = embedding(input_shape, patch, dim, vocabulary)
        self.cls = nn.Parameter(torch.empty(1, 1, dim)) if class_token else None
        self.positions = nn.Parameter(torch.empty(1, self.embed.tokens + class_token, dim))
        rates = torch.linspace(0, drop_path, depth).tolist()  # deeper blocks are dropped more often
        self.blocks = nn.ModuleList(
            Block(
                dim,
                heads,
                make_attention(heads, dim // heads),
                mlp_ratio=mlp_ratio,
                qkv_bias=qkv_bias,
                post_norm=post_norm,
                drop_path=rate,
            )
            for rate in rates
        )
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.head = nn.Linear(dim, classes, bias=not tied)
        self._initialise(init_std)
        with torch.no_grad():
            self.positions.mul_(position_init_scale)
        self._sharpen(qk_init_scale)
        if tied:
            self._tie(classes, vocabulary)

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
