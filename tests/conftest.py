from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eureka.config import RunConfig, run_config


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
