"""Random numbers that go on as if nothing had been drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def kept_random_state(devices: Sequence[int] | None = None) -> Iterator[None]:
    """Afterwards torch, NumPy and Python go on as if nothing had been drawn.

    devices   the CUDA devices whose numbers are kept; None for all
    """
    import numpy as np
    import torch

    numbers, python = np.random.get_state(), random.getstate()
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        np.random.set_state(numbers)
        random.setstate(python)
