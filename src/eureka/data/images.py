"""Pictures and their classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Images:
    """Pictures (n, height, width) or (n, height, width, 3), as floats in [0, 1] or as bytes, and their classes."""

    pixels: NDArray[Any]
    labels: NDArray[np.int64]

    def split(self, every: int) -> tuple[Images, Images]:
        """Disjoint training and validation pictures: every so-manyth of each class is held out, so the split needs no seed."""
        held_out = np.zeros(len(self.labels), dtype=bool)
        for label in np.unique(self.labels):
            held_out[np.flatnonzero(self.labels == label)[every - 1 :: every]] = True
        return self.take(~held_out), self.take(held_out)

    def take(self, chosen: NDArray[np.bool_]) -> Images:
        return Images(self.pixels[chosen], self.labels[chosen])
