"""Handwritten digits, 8×8, that ship inside scikit-learn: real data without a download (UCI, Alpaydin & Kaynak 1998)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Images:
    """Grey pictures in [0, 1], (n, height, width), and their classes."""

    pixels: NDArray[np.float32]
    labels: NDArray[np.int64]

    def split(self, every: int) -> tuple[Images, Images]:
        """Disjoint training and validation pictures: every so-manyth of each class is held out, so the split needs no seed."""
        held_out = np.zeros(len(self.labels), dtype=bool)
        for label in np.unique(self.labels):
            held_out[np.flatnonzero(self.labels == label)[every - 1 :: every]] = True
        return self.take(~held_out), self.take(held_out)

    def take(self, chosen: NDArray[np.bool_]) -> Images:
        return Images(self.pixels[chosen], self.labels[chosen])


@cache
def load_digits() -> Images:
    """All 1,797 of them."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    return Images((bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64))
