"""Tokens of which the next depends mostly on the one before the last: a model must look back, and know where it looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from benchmarks.faults.data.scores import scorer

HELD_OUT = 512


@dataclass(frozen=True)
class Chain:
    """next = before[token before the last], or last[last token], each with its share, or any; no token is below `first`."""

    vocabulary: int
    before: Tensor
    last: Tensor
    first: int = 0
    shares: tuple[float, float] = (0.75, 0.15)

    @property
    def tokens(self) -> int:
        return self.vocabulary - self.first

    def sample(self, n: int, length: int, generator: Generator) -> Tensor:
        """(n, length) tokens."""
        out = torch.randint(self.tokens, (n, length), generator=generator)
        which = torch.rand(n, length, generator=generator)
        before, last = self.shares
        for place in range(2, length):
            by_before = self.before[out[:, place - 2]]
            by_last = self.last[out[:, place - 1]]
            decides = which[:, place]
            out[:, place] = by_before.where(decides < before, by_last.where(decides < before + last, out[:, place]))
        return out + self.first

    def score(
        self, logits: Callable[[nn.Module, Tensor], Tensor], length: int, generator: Generator
    ) -> Callable[[nn.Module], float]:
        """How well a model continues sequences whose rest it cannot see."""
        held_out = self.sample(HELD_OUT, length, generator)
        places = (length // 2, length - 1)

        def right(model: nn.Module) -> Tensor:
            ends = [(logits(model, held_out[:, :place])[:, -1], held_out[:, place]) for place in places]
            return torch.cat([answer.argmax(-1) == truth for answer, truth in ends])

        return scorer(right, 1 / self.tokens, max(self.shares) + (1 - sum(self.shares)) / self.tokens)


def chain(vocabulary: int, generator: Generator, first: int = 0, shares: tuple[float, float] = (0.75, 0.15)) -> Chain:
    before, last = (torch.randperm(vocabulary - first, generator=generator) for _ in range(2))
    return Chain(vocabulary, before, last, first, shares)
