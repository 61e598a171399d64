"""What tests of several models need."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import nn

from eureka.attention.operator import Operator, make_operator


@pytest.fixture
def softmax() -> Callable[[int, int], Operator]:
    return lambda heads, head_dim: make_operator("softmax", heads=heads, head_dim=head_dim)


@pytest.fixture
def randomised() -> Callable[[nn.Module], None]:
    """Larger weights and biases than at the start, so that nothing is hidden by being small."""

    def randomise(model: nn.Module) -> None:
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.3)

    return randomise
