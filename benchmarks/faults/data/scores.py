"""From a share of right answers to a share of what can be learned."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """In evaluation mode and without gradients; afterwards every module has its own mode back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def scorer(right: Callable[[nn.Module], Tensor], chance: float, ceiling: float = 1.0) -> Callable[[nn.Module], float]:
    """A score from a function that says of each held-out answer whether it is right."""

    def score(model: nn.Module) -> float:
        with evaluating(model):
            share = right(model).float().mean().item()
        return (share - chance) / (ceiling - chance)

    return score
