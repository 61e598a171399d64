"""Handwritten digits, 8×8, that ship inside scikit-learn: real data without a download (UCI, Alpaydin & Kaynak 1998)."""

from __future__ import annotations

from functools import cache

import numpy as np

from eureka.data.images import Images


@cache
def load_digits() -> Images:
    """All 1,797 of them."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    return Images((bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64))
