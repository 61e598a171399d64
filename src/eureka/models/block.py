"""One attention and one block, shared by all transformers here."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention.mask import Mask, as_mask
from eureka.attention.operator import Operator

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
        if mask is not None and self.attend.rows_depend_on_each_other:
            self.attend.check_mask(as_mask(mask), q.shape[2], k.shape[2])
        mixed = self.attend(q, k, v, mask)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Pre-norm: x + attention(norm(x)), then x + mlp(norm(x)). Post-norm: norm(x + attention(x)), then norm(x + mlp(x))."""

    def __init__(
        self,
        dim: int,
        heads: int,
        operator: Operator,
        *,
        mlp_ratio: float = 2.0,
        qkv_bias: bool = False,
        post_norm: bool = False,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        hidden = round(dim * mlp_ratio)
        self.post_norm, self.drop_path = post_norm, drop_path
        self.norm1 = nn.LayerNorm(dim, eps=EPS)
        self.attention = Attention(dim, heads, operator, bias=qkv_bias)
        self.norm2 = nn.LayerNorm(dim, eps=EPS)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        if self.post_norm:
            x = self.norm1(x + self._dropped(self.attention(x, mask)))
            return self.norm2(x + self._dropped(self._mlp(x)))  # type: ignore[no-any-return]
        x = x + self._dropped(self.attention(self.norm1(x), mask))
        return x + self._dropped(self._mlp(self.norm2(x)))

    def _mlp(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))  # type: ignore[no-any-return]

    def _dropped(self, branch: Tensor) -> Tensor:
        """Stochastic depth: while training, a sample goes without this branch now and then; the mean stays the same."""
        if not self.training or not self.drop_path:
            return branch
        keep = 1 - self.drop_path
        kept = torch.rand(len(branch), 1, 1, device=branch.device) < keep
        return branch * kept / keep
