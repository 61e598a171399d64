"""Rows of different length, padded: which of two groups of tokens is more frequent among the real ones?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from benchmarks.faults.data.scores import scorer

PAD = 0
HELD_OUT = 512


@dataclass(frozen=True)
class Rows:
    """Tokens from 1 on; each has one of `classes` groups, and in a row one group is far more frequent than the others."""

    group: Tensor
    classes: int
    length: int

    @property
    def vocabulary(self) -> int:
        return 1 + len(self.group)

    def sample(self, n: int, generator: Generator, shortest: int = 3) -> tuple[Tensor, Tensor]:
        """(n, length) tokens, padded on the right, and the frequent group."""
        answer = torch.randint(self.classes, (n,), generator=generator)
        each = len(self.group) // self.classes
        member = torch.randint(each, (n, self.length), generator=generator)
        other = torch.randint(self.classes, (n, self.length), generator=generator)
        chosen = torch.where(torch.rand(n, self.length, generator=generator) < 0.6, answer[:, None], other)
        tokens = 1 + torch.argsort(self.group, stable=True)[chosen * each + member]
        lengths = torch.randint(shortest, self.length + 1, (n,), generator=generator)
        return tokens.masked_fill(torch.arange(self.length) >= lengths[:, None], PAD), answer

    def score(self, outputs: Callable[[nn.Module, Tensor], Tensor], generator: Generator) -> Callable[[nn.Module], float]:
        """Held-out rows are short: what a model makes of padding shows."""
        tokens, truth = self.sample(HELD_OUT, generator)
        tokens[:, self.length // 4 :] = PAD

        def right(model: nn.Module) -> Tensor:
            return outputs(model, tokens).argmax(-1) == truth

        return scorer(right, 1 / self.classes, 0.93)


def rows(classes: int, each: int, length: int, generator: Generator) -> Rows:
    group = torch.arange(classes).repeat_interleave(each)
    return Rows(group[torch.randperm(classes * each, generator=generator)], classes, length)
