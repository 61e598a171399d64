"""One attention and one block, shared by all transformers here."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention import Mask, Operator

EPS = 1e-6


class Attention(nn.Module):
    """Multi-head self-attention around an operator: the only place where q, k and v are made."""

    def __init__(self, dim: int, heads: int, operator: Operator, *, bias: bool = False) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=bias)
        self.attend = operator
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # each (B, H, N, D)
        mixed = self.attend(q, k, v, mask)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, dim: int, heads: int, operator: Operator, *, mlp_ratio: float = 2.0, qkv_bias: bool = False) -> None:
        super().__init__()
        hidden = round(dim * mlp_ratio)
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attention = Attention(dim, heads, operator, bias=qkv_bias)
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        x = x + self.attention(self.norm1(x), mask)
        return x + self.down(F.gelu(self.up(self.norm2(x))))  # type: ignore[no-any-return]
