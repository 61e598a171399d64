"""Attention written by hand, in three ways: einsum, matrix products, and a function without a module of its own."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

Writing = Literal["einsum", "matmul", "function"]


def attend(q: Tensor, k: Tensor, v: Tensor, blocked: Tensor | None, scale: float, axis: int) -> Tensor:
    """softmax(q kᵀ · scale) v over (b, heads, n, d); `blocked` is added to the logits."""
    logits = q @ k.transpose(-2, -1) * scale
    if blocked is not None:
        logits = logits + blocked
    return logits.softmax(axis) @ v


class HandAttention(nn.Module):
    """The softmax is over the keys (axis -1), unless a plan says otherwise."""

    def __init__(self, dim: int, heads: int, writing: Writing) -> None:
        super().__init__()
        self.heads, self.writing, self.axis = heads, writing, -1
        self.scale = 1 / math.sqrt(dim // heads)
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, blocked: Tensor | None) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (self.heads, -1)) for part in (self.to_q, self.to_k, self.to_v))
        if self.writing == "einsum":
            logits = torch.einsum("bqhd,bkhd->bhqk", q, k) * self.scale
            if blocked is not None:
                logits = logits + blocked
            weights = torch.softmax(logits, dim=self.axis)
            return self.out(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))  # type: ignore[no-any-return]
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        if self.writing == "function":
            mixed = attend(q, k, v, blocked, self.scale, self.axis)
        else:
            logits = torch.matmul(q, k.transpose(-1, -2)) * self.scale
            if blocked is not None:
                logits = logits + blocked
            mixed = torch.matmul(torch.softmax(logits, dim=self.axis), v)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class HandBlock(nn.Module):
    """Normalises after each part, as the first transformers did, or before it."""

    def __init__(self, dim: int, heads: int, writing: Writing, post: bool, dropout: float) -> None:
        super().__init__()
        self.attention = HandAttention(dim, heads, writing)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))
        self.norm1, self.norm2, self.drop = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.Dropout(dropout)
        self.post, self.residual = post, True

    def forward(self, x: Tensor, blocked: Tensor | None) -> Tensor:
        if not self.residual:
            return self.mlp(self.norm2(self.attention(self.norm1(x), blocked)))  # type: ignore[no-any-return]
        if self.post:
            x = self.norm1(x + self.drop(self.attention(x, blocked)))
            return self.norm2(x + self.drop(self.mlp(x)))  # type: ignore[no-any-return]
        x = x + self.drop(self.attention(self.norm1(x), blocked))
        return x + self.drop(self.mlp(self.norm2(x)))  # type: ignore[no-any-return]


def waves(length: int, dim: int) -> Tensor:
    """Fixed sines and cosines as positions, (1, length, dim)."""
    place = torch.arange(length)[:, None]
    rate = 10_000 ** (-torch.arange(0, dim, 2) / dim)
    return torch.stack([(place * rate).sin(), (place * rate).cos()], -1).flatten(1)[None]


class HandModel(nn.Module):
    """Tokens (b, n), or features (b, n, `features`), in; logits at every token, or one answer from the mean of the tokens.

    causal   a token sees none after it; `value` is what the mask adds to the logits, `diagonal` the first that it blocks
    pad      a token that the others do not see and that the mean leaves out
    batch    features are normalised by batch statistics first
    """

    def __init__(
        self,
        outputs: int,
        length: int,
        vocabulary: int = 0,
        features: int = 0,
        dim: int = 32,
        depth: int = 2,
        heads: int = 2,
        writing: Writing = "matmul",
        causal: bool = False,
        pooled: bool = False,
        post: bool = False,
        dropout: float = 0.0,
        pad: int | None = None,
        batch: bool = False,
        hidden: bool = False,
    ) -> None:
        super().__init__()
        self.causal, self.pooled, self.pad = causal, pooled, pad
        self.value, self.diagonal, self.detached = -math.inf, 1, False
        self.scale_in = nn.BatchNorm1d(features) if batch else None
        self.embed: nn.Module = nn.Linear(features, dim) if features else nn.Embedding(vocabulary, dim)
        self.positions: Tensor
        self.register_buffer("positions", waves(length, dim))
        self.blocks = nn.ModuleList(HandBlock(dim, heads, writing, post, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head: nn.Module = nn.Linear(dim, outputs)
        if hidden:
            self.head = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, outputs))

    def forward(self, inputs: Tensor, real: Tensor | None = None) -> Tensor:
        """`real` says which tokens are no padding; without it, those that are not `pad`."""
        if real is None and self.pad is not None:
            real = inputs != self.pad
        x = inputs if self.scale_in is None else self.scale_in(inputs.flatten(0, 1)).view(inputs.shape)
        x = self.embed(x) + self.positions[:, : x.shape[1]]
        blocked = self._blocked(x.shape[1], real)
        for block in self.blocks:
            x = block(x, blocked)
        if self.pooled:
            x = x.mean(1) if real is None else (x * real.unsqueeze(-1)).sum(1) / real.sum(1, keepdim=True)
        return self.head(self.norm(x.detach() if self.detached else x))  # type: ignore[no-any-return]

    def _blocked(self, n: int, real: Tensor | None) -> Tensor | None:
        if self.causal:
            return torch.full((n, n), self.value).triu(self.diagonal)
        return None if real is None else torch.zeros(real.shape).masked_fill(~real, -math.inf)[:, None, None]
