"""Tokens some of which are hidden: what was there follows from the neighbours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from benchmarks.faults.data.scores import scorer

IGNORED = -100
MASK, PAD, FIRST = 0, 1, 2
"""The mask token, padding, and the first real token."""
HIDDEN = 0.2
HELD_OUT = 256


@dataclass(frozen=True)
class Masked:
    """Every token is the successor of the one before it, in a secret order of the vocabulary."""

    successor: Tensor
    length: int

    @property
    def vocabulary(self) -> int:
        return FIRST + len(self.successor)

    def sample(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """(n, length) tokens with some hidden, and what was there; `IGNORED` where nothing is asked."""
        token = torch.randint(len(self.successor), (n,), generator=generator)
        columns = []
        for _ in range(self.length):
            columns.append(token)
            token = self.successor[token]
        tokens = torch.stack(columns, 1) + FIRST
        hidden = torch.rand(tokens.shape, generator=generator) < HIDDEN
        hidden[:, self.length // 2] = True
        return tokens.masked_fill(hidden, MASK), tokens.where(hidden, torch.tensor(IGNORED))

    def score(self, logits: Callable[[nn.Module, Tensor], Tensor], generator: Generator) -> Callable[[nn.Module], float]:
        tokens, labels = self.sample(HELD_OUT, generator)
        asked = labels != IGNORED

        def right(model: nn.Module) -> Tensor:
            return logits(model, tokens)[asked].argmax(-1) == labels[asked]

        return scorer(right, 1 / len(self.successor))


def masked(tokens: int, length: int, generator: Generator) -> Masked:
    """The secret order is one cycle through all tokens."""
    order = torch.randperm(tokens, generator=generator)
    successor = torch.empty_like(order)
    successor[order] = order.roll(-1)
    return Masked(successor, length)
