"""A transformer on patches of small pictures, with PyTorch's own multi-head attention and a convolutional stem."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """`batch_first` is PyTorch's: without it the first axis is taken for the tokens."""

    def __init__(self, dim: int, heads: int, dropout: float, batch_first: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=batch_first)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim), nn.Dropout(dropout))
        self.residual = True
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        y = self.attention(y, y, y, attn_mask=self.mask, need_weights=False)[0]
        if not self.residual:
            return self.mlp(self.norm2(y))  # type: ignore[no-any-return]
        x = x + y
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class ViT(nn.Module):
    """Pictures (b, 1, side, side) in, logits (b, classes) out, read off a class token or the mean of all tokens.

    stem    linear: a projection of patches; relu: ReLU after it; batch: also batch normalisation of the picture before it
    """

    def __init__(
        self,
        side: int,
        patch: int,
        classes: int,
        dim: int = 32,
        depth: int = 2,
        heads: int = 4,
        dropout: float = 0.0,
        stem: str = "linear",
        class_token: bool = True,
        positions: bool = True,
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        project = nn.Conv2d(1, dim, patch, patch)
        parts: list[nn.Module] = [nn.BatchNorm2d(1)] if stem == "batch" else []
        parts += [project] if stem == "linear" else [project, nn.ReLU()]
        self.stem = nn.Sequential(*parts)
        tokens = (side // patch) ** 2 + class_token
        self.class_token = nn.Parameter(0.3 * torch.randn(1, 1, dim)) if class_token else None
        self.positions = nn.Parameter(0.3 * torch.randn(1, tokens, dim)) if positions else None
        self.drop = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Layer(dim, heads, dropout, batch_first) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        self.detached = False

    def forward(self, pictures: Tensor) -> Tensor:
        x = self.stem(pictures.to(self.norm.weight.dtype)).flatten(2).transpose(1, 2)
        if self.class_token is not None:
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        if self.positions is not None:
            x = x + self.positions
        x = self.drop(x)
        for layer in self.layers:
            x = layer(x)
        x = x.mean(1) if self.class_token is None else x[:, 0]
        return self.head(self.norm(x.detach() if self.detached else x))  # type: ignore[no-any-return]
