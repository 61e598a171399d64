"""Rows of different length, filled up: which group of tokens is the most frequent among the real ones?"""

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
    """Tokens from 1 on, each of one of `classes` groups; of the real tokens in a row most are of one group.

    What comes after them is the token `PAD`; or, in `stale` rows, they stand somewhere among the tokens of another row.
    """

    group: Tensor
    classes: int
    length: int
    stale: bool = False

    @property
    def vocabulary(self) -> int:
        return 1 + len(self.group)

    def sample(self, n: int, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
        """(n, length) tokens; which of them are real; and the frequent group."""
        tokens, answer = self._full(n, generator)
        longest = self.length // 4 if self.stale else self.length
        lengths = torch.randint(4, longest + 1, (n, 1), generator=generator)
        begin = (torch.rand(n, 1, generator=generator) * (self.length - lengths + 1)).long() if self.stale else 0
        place = torch.arange(self.length) - begin
        real = (place >= 0) & (place < lengths)
        fill = self._full(n, generator)[0] if self.stale else torch.full_like(tokens, PAD)
        return tokens.where(real, fill), real, answer

    def _full(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        answer = torch.randint(self.classes, (n,), generator=generator)
        each = len(self.group) // self.classes
        member = torch.randint(each, (n, self.length), generator=generator)
        other = torch.randint(self.classes, (n, self.length), generator=generator)
        chosen = torch.where(torch.rand(n, self.length, generator=generator) < 0.7, answer[:, None], other)
        return 1 + torch.argsort(self.group, stable=True)[chosen * each + member], answer

    def score(self, outputs: Callable[[nn.Module, Tensor, Tensor], Tensor], generator: Generator) -> Callable[[nn.Module], float]:
        tokens, real, truth = self.sample(HELD_OUT, generator)

        def right(model: nn.Module) -> Tensor:
            return outputs(model, tokens, real).argmax(-1) == truth

        return scorer(right, 1 / self.classes)


def rows(classes: int, each: int, length: int, generator: Generator, stale: bool = False) -> Rows:
    group = torch.arange(classes).repeat_interleave(each)
    return Rows(group[torch.randperm(classes * each, generator=generator)], classes, length, stale)
