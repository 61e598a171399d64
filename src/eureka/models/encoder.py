"""A pre-norm transformer encoder that classifies: the ViT of the paper at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from eureka.attention import Operator
from eureka.errors import RequestError
from eureka.models.block import EPS, Block
from eureka.models.embedding import embedding

Positive = Annotated[int, Field(ge=1)]


class Encoder(nn.Module):
    """Tokens of the input, a class token if asked for, learned positions, blocks, one linear read-out.

    `make_attention` is called once for each block with the number of heads and the head dimension.
    """

    undecayed = frozenset({"positions", "cls"})
    """parameters that weight decay must leave alone although they are matrices"""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        make_attention: Callable[[int, int], Operator],
        *,
        dim: Positive = 64,
        depth: Positive = 2,
        heads: Positive = 2,
        mlp_ratio: Annotated[float, Field(gt=0)] = 2.0,
        patch: Positive | tuple[Positive, Positive] = 4,
        readout: Literal["cls", "mean"] = "cls",
        qkv_bias: bool = False,
        init_std: Annotated[float, Field(gt=0)] = 0.02,
    ) -> None:
        super().__init__()
        if dim % heads:
            raise RequestError(f"model.dim ({dim}) must be a multiple of model.heads ({heads}).")
        self.embed = embedding(input_shape, patch, dim)
        self.cls = nn.Parameter(torch.empty(1, 1, dim)) if readout == "cls" else None
        self.positions = nn.Parameter(torch.empty(1, self.embed.tokens + (readout == "cls"), dim))
        self.blocks = nn.ModuleList(
            Block(dim, heads, make_attention(heads, dim // heads), mlp_ratio=mlp_ratio, qkv_bias=qkv_bias) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim, eps=EPS)
        self.head = nn.Linear(dim, classes)
        self._initialise(init_std)

    def _initialise(self, std: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=std)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for parameter in (self.positions, self.cls):
            if parameter is not None:
                nn.init.trunc_normal_(parameter, std=std)

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.embed(inputs)  # (B, N, dim)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)
        x = x + self.positions
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(dim=1) if self.cls is None else x[:, 0])  # type: ignore[no-any-return]
