"""The main task's picture put together one sample at a time, as a data set class usually does it: the baseline of the bench."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from eureka.data.images import load_images

TILE = 28
CORNERS = ((0, 0), (0, TILE), (TILE, 0), (TILE, TILE))
RED, BLUE, WHITE = np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), np.ones(3)


class PerSample:
    """Pictures by class; `sample` makes each picture by itself and stacks them."""

    def __init__(self, seed: int = 0) -> None:
        digits, fashion = load_images("mnist", "train"), load_images("fashion_mnist", "train")
        self.digits = [digits.pixels[digits.labels == digit] for digit in range(10)]
        self.fashion = [fashion.pixels[fashion.labels == label] for label in range(10)]
        self.rng = np.random.default_rng(seed)

    def sample(self, n: int) -> tuple[Tensor, Tensor]:
        pictures, labels = zip(*(self.one() for _ in range(n)), strict=True)
        return torch.stack([torch.from_numpy(picture) for picture in pictures]), torch.tensor(labels)

    def one(self) -> tuple[NDArray[np.float32], int]:
        """One picture of 56×56 in colour, and its label."""
        rng = self.rng
        first, second = (int(digit) for digit in rng.integers(1, 3, 2))
        right, left = (int(label) for label in rng.integers(0, 10, 2))
        picture = np.zeros((3, 2 * TILE, 2 * TILE), dtype=np.float32)
        shelves = (self.digits[first], self.fashion[right], self.fashion[left], self.digits[second])
        colours = (self._tint(), WHITE, WHITE, self._tint())
        for shelf, colour, (y, x) in zip(shelves, colours, CORNERS, strict=True):
            shade = shelf[rng.integers(len(shelf))] / np.float32(255)
            noisy = np.clip(colour + 0.05 * rng.standard_normal(3), 0, 1).astype(np.float32)
            picture[:, y : y + TILE, x : x + TILE] = shade * noisy[:, None, None]
        return picture, right if first == second else left

    def _tint(self) -> NDArray[np.float64]:
        return RED if self.rng.random() < 0.5 else BLUE
