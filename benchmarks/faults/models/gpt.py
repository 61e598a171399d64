"""A causal transformer as in many tutorials: fused q, k, v, PyTorch's attention, learned positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalAttention(nn.Module):
    """Attributes rather than arguments say what a token may see, so that a plan can change them."""

    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ahead, self.window = 0, 10**6
        """How many tokens ahead a token sees, and how many it sees up to itself."""

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        b, n, dim = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        drop = self.dropout if self.training else 0.0
        if self.ahead == 0 and self.window >= n and padding is None:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self._mask(n, padding), dropout_p=drop)
        return self.out(mixed.transpose(1, 2).reshape(b, n, dim))  # type: ignore[no-any-return]

    def _mask(self, n: int, padding: Tensor | None) -> Tensor:
        """True where a token may look; everyone sees itself, so that no row is empty."""
        back = torch.arange(n)[:, None] - torch.arange(n)
        allowed = (back >= -self.ahead) & (back < self.window)
        if padding is None:
            return allowed
        return (allowed & ~padding[:, None, None, :]) | torch.eye(n, dtype=torch.bool)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = CausalAttention(dim, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim), nn.Dropout(dropout))
        self.residual = True

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        if not self.residual:
            return self.mlp(self.norm2(self.attention(self.norm1(x), padding)))  # type: ignore[no-any-return]
        x = x + self.attention(self.norm1(x), padding)
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    """Tokens (b, n) in, logits (b, n, vocabulary) out.

    pad       a token that is hidden from the others, wherever it stands
    hidden    puts a layer with ReLU before the logits
    listed    keeps the blocks in a plain list, where PyTorch does not see them
    """

    def __init__(
        self,
        vocabulary: int,
        length: int,
        dim: int = 48,
        depth: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
        positions: bool = True,
        tied: bool = False,
        pad: int | None = None,
        hidden: bool = False,
        listed: bool = False,
    ) -> None:
        super().__init__()
        self.pad, self.detached = pad, False
        self.tokens = nn.Embedding(vocabulary, dim)
        self.positions = nn.Embedding(length, dim) if positions else None
        self.drop = nn.Dropout(dropout)
        blocks = [Block(dim, heads, dropout) for _ in range(depth)]
        self.blocks = blocks if listed else nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(dim)
        self.head: nn.Module = nn.Linear(dim, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight
        if hidden:
            self.head = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, vocabulary))
        nn.init.normal_(self.tokens.weight, std=0.3)
        if self.positions is not None:
            nn.init.normal_(self.positions.weight, std=0.3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1]))
        x = self.drop(x)
        padding = None if self.pad is None else tokens == self.pad
        for block in self.blocks:
            x = block(x, padding)
        return self.head(self.norm(x.detach() if self.detached else x))  # type: ignore[no-any-return]
