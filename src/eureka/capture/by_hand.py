"""Training without an optimiser: weights that the script itself moves against their gradients after each backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import SGD

SAMPLED = 1000
"""Elements of each weight by which it is seen that it was written to."""


def leaves_of(root: Tensor) -> list[Tensor]:
    """Return the tensors whose gradient a backward from here computes."""
    found: dict[int, Tensor] = {}
    waiting, seen = [root.grad_fn], set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor) and leaf.is_leaf:
            found.setdefault(id(leaf), leaf)
        waiting += [one for one, _ in node.next_functions]
    return list(found.values())


class UpdatesByHand(SGD):
    """Stands for the script's own lines that update these weights; it changes nothing itself."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__(weights, lr=0.0)


class HandSuspicion:
    """Whether weights are written between two backwards although no optimiser steps."""

    def __init__(self, root: Tensor) -> None:
        self.weights = leaves_of(root)
        self._before = [_sample(one) for one in self.weights]

    def holds(self, root: Tensor) -> bool:
        """Return whether the same weights are trained from this loss, and have changed."""
        if {id(one) for one in leaves_of(root)} != {id(one) for one in self.weights}:
            return False
        return any(not torch.equal(_sample(one), before) for one, before in zip(self.weights, self._before, strict=True))


def _sample(weight: Tensor) -> Tensor:
    return weight.detach().reshape(-1)[:SAMPLED].clone()


def rate_of(before: Sequence[Tensor], gradients: Sequence[Tensor | None], after: Sequence[Tensor]) -> tuple[float, float]:
    """Return the rate at which weights were moved against their gradients, and the share of the move that it does not explain.

    >>> weight, gradient = torch.ones(3), torch.tensor([1.0, 2.0, 0.0])
    >>> rate, left = rate_of([weight], [gradient], [weight - 0.1 * gradient])
    >>> round(rate, 6), round(left, 6)
    (0.1, 0.0)
    """
    rows = [
        ((new - old).double().flatten(), gradient.double().flatten())
        for old, gradient, new in zip(before, gradients, after, strict=True)
        if gradient is not None
    ]
    size = sum(float(gradient @ gradient) for _, gradient in rows)
    moved = sum(float(move @ move) for move, _ in rows)
    if not size or not moved:
        return 0.0, 0.0
    rate = -sum(float(move @ gradient) for move, gradient in rows) / size
    left = sum(float((move + rate * gradient).square().sum()) for move, gradient in rows)
    return rate, (left / moved) ** 0.5
