from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eureka.config import RunConfig, run_config
from eureka.data.images import Images
from eureka.data.text import EncodedCorpus


def tiny_config(**training: Any) -> RunConfig:
    settings = {
        "steps": 24,
        "warmup": 4,
        "lr": 1e-3,
        "batch_size": 16,
        "log_every": 5,
        "validation_samples": 64,
        "checkpoint_every": 7,
    }
    return run_config(
        task={"name": "tiles", "tokens": 1, "features": 8},
        model={"name": "encoder", "dim": 16, "depth": 1},
        attention={"name": "norm_softmax"},
        training=settings | training,
    )


@pytest.fixture
def tiny() -> RunConfig:
    """A real run that takes a fraction of a second."""
    return tiny_config()


@pytest.fixture
def make_tiny() -> Callable[..., RunConfig]:
    return tiny_config


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of the right size in place of pictures that need not be here, and a text that repeats itself."""

    def noise(name: str, part: str) -> Images:
        rng = np.random.default_rng(0)
        shape = (40, 32, 32, 3) if name == "cifar10" else (40, 28, 28)
        return Images(rng.integers(0, 256, shape, dtype=np.uint8), np.arange(40, dtype=np.int64) % 10)

    def words(name: str, vocabulary: int) -> EncodedCorpus:
        row = (np.arange(4_000) % 50 + 1).astype(np.int32)  # the token before tells the next
        return EncodedCorpus(row[:3_000], row[3_000:], vocabulary)

    monkeypatch.setattr("eureka.tasks.pictures.load_images", noise)
    monkeypatch.setattr("eureka.tasks.masked_text.encoded_corpus", words)
