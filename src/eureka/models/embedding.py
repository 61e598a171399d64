"""From what a task shows to tokens."""

from __future__ import annotations

from torch import Tensor, nn

from eureka.errors import RequestError


class FeatureEmbedding(nn.Module):
    """(B, tokens, features) → (B, tokens, dim)."""

    def __init__(self, tokens: int, features: int, dim: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.project = nn.Linear(features, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x)  # type: ignore[no-any-return]


class PatchEmbedding(nn.Module):
    """(B, channels, height, width) → (B, tokens, dim), a token for each patch, row by row."""

    def __init__(self, channels: int, height: int, width: int, patch: tuple[int, int], dim: int) -> None:
        super().__init__()
        if height % patch[0] or width % patch[1]:
            raise RequestError(f"a patch of {patch[0]}×{patch[1]} does not divide a picture of {height}×{width}.")
        self.patch = patch
        self.tokens = (height // patch[0]) * (width // patch[1])
        self.project = nn.Linear(channels * patch[0] * patch[1], dim)

    def forward(self, x: Tensor) -> Tensor:
        (B, C, height, width), (ph, pw) = x.shape, self.patch
        tiles = x.reshape(B, C, height // ph, ph, width // pw, pw)
        patches = tiles.permute(0, 2, 4, 1, 3, 5).reshape(B, self.tokens, -1)
        return self.project(patches)  # type: ignore[no-any-return]


class TokenEmbedding(nn.Module):
    """(B, tokens) numbers of a vocabulary → (B, tokens, dim)."""

    def __init__(self, tokens: int, vocabulary: int, dim: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.table = nn.Embedding(vocabulary, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x)  # type: ignore[no-any-return]


Embedding = FeatureEmbedding | PatchEmbedding | TokenEmbedding


def embedding(input_shape: tuple[int, ...], patch: int | tuple[int, int], dim: int, vocabulary: int | None = None) -> Embedding:
    """The embedding that fits what a task shows."""
    if vocabulary is not None:
        return TokenEmbedding(input_shape[0], vocabulary, dim)
    if len(input_shape) == 2:
        return FeatureEmbedding(*input_shape, dim)
    channels, height, width = input_shape
    return PatchEmbedding(channels, height, width, (patch, patch) if isinstance(patch, int) else patch, dim)
