"""What is asked for: how often each class, or the spread of a target; counted while losses are computed."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

CLASSIFIERS = ("cross_entropy", "nll_loss")


class LabelCounter(TorchFunctionMode):
    """Counts the labels that cross-entropy is given while it is active, and sums up the targets of a squared error."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Tensor | None = None
        self.numbers, self.total, self.squares = 0, 0.0, 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in CLASSIFIERS:
            self._count(*args, **(kwargs or {}))
        elif name == "mse_loss":
            self._add(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _count(self, given: Any = None, target: Any = None, *_: Any, ignore_index: int = -100, **named: Any) -> None:
        given, target = named.get("input", given), named.get("target", target)
        if not isinstance(given, Tensor) or not isinstance(target, Tensor) or target.is_floating_point() or given.dim() < 2:
            return
        classes, kept = int(given.shape[1]), target.detach().flatten()
        kept = kept[(kept != ignore_index) & (kept >= 0) & (kept < classes)]
        counts = torch.bincount(kept, minlength=classes).cpu()
        if self.counts is None or len(self.counts) == classes:
            self.counts = counts if self.counts is None else self.counts + counts

    def _add(self, given: Any = None, target: Any = None, *_: Any, **named: Any) -> None:
        target = named.get("target", target)
        if isinstance(target, Tensor):
            values = target.detach().double()
            self.numbers += values.numel()
            self.total += float(values.sum())
            self.squares += float(values.square().sum())

    @property
    def variance(self) -> float | None:
        """The squared error of the best answer that does not look at the inputs."""
        if self.numbers < 9:
            return None
        return max(self.squares / self.numbers - (self.total / self.numbers) ** 2, 0.0)

    @property
    def guessing(self) -> float | None:
        """The loss of the best answer that does not look at the inputs: the entropy of the labels, at most ln C.

        With few labels the entropy seems too low; the correction is Miller's.
        """
        if self.counts is None or int(self.counts.sum()) < 1 or len(self.counts) < 2:
            return None
        n, occurring = int(self.counts.sum()), self.counts[self.counts > 0]
        shares = occurring.double() / n
        entropy = float(-(shares * shares.log()).sum()) + (len(occurring) - 1) / (2 * n)
        return min(entropy, math.log(len(self.counts)))
