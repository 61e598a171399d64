"""Tensors for small models, the same ones in every run."""

from __future__ import annotations

import torch
from torch import Tensor

BATCH, TOKENS, SAMPLES, FRAMES = 2, 10, 6000, 64


def ids(words: int, *more: int) -> Tensor:
    """Words of a vocabulary: (BATCH, TOKENS, …)."""
    return torch.randint(5, min(words, 70), (BATCH, TOKENS, *more), generator=generator())


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=generator())


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)
