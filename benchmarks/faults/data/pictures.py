"""Small pictures: where a mark stands, which marks there are, how bright all is, and real digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from benchmarks.faults.data.scores import scorer

Question = Literal["place", "mark", "marks", "shade", "far"]
SIDE, TILE = 12, 3
CELLS = SIDE // TILE
HELD_OUT = 512
Values = tuple[float, float]
CENTRED, UNIT, GREY = (0.0, 1.0), (0.5, 0.2), (128.0, 40.0)
"""What is added to pixels and what they are multiplied with: as they are drawn, about from 0 to 1, and about from 0 to 255."""


@dataclass(frozen=True)
class Pictures:
    """(n, 1, 12, 12) pictures of noise with marks of 3×3 pixels in the cells of a grid.

    question   place: in which quarter the first mark stands, among others; mark: which mark there is; marks: which of them there
               are, each a yes or no; shade: how bright the picture is; far: how far to the right the first mark stands
    """

    question: Question
    marks: Tensor
    values: Values = CENTRED
    noise: float = 0.3

    @property
    def answers(self) -> int:
        return {"place": 4, "mark": len(self.marks), "marks": len(self.marks), "shade": 4, "far": 1}[self.question]

    def sample(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        shown, answer = self._centred(n, generator)
        return self.values[0] + self.values[1] * shown, answer

    def _centred(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        cells = torch.rand(n, CELLS * CELLS, generator=generator).argsort(1)[:, : len(self.marks)]
        pictures = self.noise * torch.randn(n, SIDE, SIDE, generator=generator)
        if self.question == "shade":
            answer = torch.randint(4, (n,), generator=generator)
            return (pictures * (1 + answer[:, None, None]) / 2 + answer[:, None, None])[:, None], answer
        shown, answer = self._shown(n, cells, generator)
        tiles = pictures.view(n, CELLS, TILE, CELLS, TILE)
        for mark, looks in enumerate(self.marks):
            row, column = cells[:, mark] // CELLS, cells[:, mark] % CELLS
            tiles[torch.arange(n), row, :, column] += looks * shown[:, mark, None, None]
        return pictures[:, None], answer

    def _shown(self, n: int, cells: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Which marks a picture shows, and the answer."""
        row, column = cells[:, 0] // CELLS, cells[:, 0] % CELLS
        if self.question == "mark":
            answer = torch.randint(len(self.marks), (n,), generator=generator)
            return torch.nn.functional.one_hot(answer, len(self.marks)), answer
        if self.question == "marks":
            shown = torch.randint(2, (n, len(self.marks)), generator=generator)
            return shown, shown.float()
        shown = torch.ones(n, len(self.marks))
        if self.question == "far":
            return shown, (column - (CELLS - 1) / 2).float()
        return shown, 2 * (row >= CELLS // 2).long() + (column >= CELLS // 2).long()

    def score(self, outputs: Callable[[nn.Module, Tensor], Tensor], generator: Generator) -> Callable[[nn.Module], float]:
        pictures, truth = self.sample(HELD_OUT, generator)

        def right(model: nn.Module) -> Tensor:
            out = outputs(model, pictures)
            if self.question == "marks":
                return (out > 0) == (truth > 0)
            if self.question == "far":
                return 1 - (out.reshape(-1) - truth) ** 2 / truth.var()  # the mean is R²
            return out.argmax(-1) == truth

        chance = {"far": 0.0, "marks": 0.5}.get(self.question, 1 / self.answers)
        return scorer(right, chance)


def pictures(question: Question, generator: Generator, marks: int = 3, values: Values = CENTRED) -> Pictures:
    """The marks are drawn at random, so loud that each can be told from the noise."""
    looks = torch.randn(marks, TILE, TILE, generator=generator)
    looks -= looks.mean((1, 2), keepdim=True)
    return Pictures(question, 1.5 * looks / looks.std((1, 2), keepdim=True), values)


@cache
def digits() -> tuple[Tensor, Tensor]:
    """The 1,797 real handwritten digits of scikit-learn, (n, 1, 8, 8), values from 0 to 16."""
    from sklearn.datasets import load_digits

    found = load_digits()
    return torch.tensor(found.images, dtype=torch.float32)[:, None], torch.tensor(found.target)
