"""A small run with everything that a diagnosis could disturb: buffers, dropout, an optimiser with state, hooks, generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """Samples that are shifted by a generator of the data set's own, as augmentations are."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, 12, (96, 6), generator=draw)
        self.noise = np.random.default_rng(3)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        tokens = self.tokens[row].roll(int(self.noise.integers(0, 2)))
        return tokens, tokens.flip(0)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.norm = nn.BatchNorm1d(16)
        self.head = nn.Linear(16, 12)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.block(self.embed(tokens))
        result: Tensor = self.head(self.norm(hidden.transpose(1, 2)).transpose(1, 2))
        return result


def loss(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@dataclass
class Run:
    """The model after a few steps, half of it in evaluation mode, with a gradient left over and a hook of the user's."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    loader: DataLoader[Any]

    @property
    def all(self) -> tuple[Any, ...]:
        rows: Any = self.loader.dataset
        return self.model, self.optimizer, self.generator, rows.tokens, rows.noise.bit_generator.state


def make_run(steps: int = 3) -> Run:
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(Rows(), batch_size=8, shuffle=True, generator=generator)
    run = Run(model, optimizer, generator, loader)
    for _, batch in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        loss(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.block.eval()
    model.head.register_forward_hook(lambda module, args, output: output * 1.0)
    return run


def interrupting(after: int, error: BaseException) -> Callable[[nn.Module, Any], Tensor]:
    """A loss that fails once it has been computed so many times."""
    calls = iter(range(10_000))

    def failing(model: nn.Module, batch: Any) -> Tensor:
        if next(calls) == after:
            raise error
        return loss(model, batch)

    return failing
