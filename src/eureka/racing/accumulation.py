"""A larger batch by accumulation, whatever the loop does: the optimiser gathers gradients and steps at every n-th call."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eureka.forks.case import Fork
from eureka.racing.remedy import Applied


def accumulate(fork: Fork, batches: int) -> Applied:
    """Step with the mean gradient of so many batches."""
    optimizer = fork.optimizer
    own = optimizer.__dict__.get("step")  # that of a scheduler, which counts steps
    step = optimizer.step
    sums: dict[Tensor, Tensor] = {}
    calls = 0

    @torch.no_grad()
    def gather(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        for parameter in _trained(fork):
            share = parameter.grad.div(batches)  # type: ignore[union-attr]
            sums[parameter] = sums[parameter].add(share) if parameter in sums else share
        if calls % batches:
            return None
        for parameter, total in sums.items():
            parameter.grad = total
        sums.clear()
        with torch.enable_grad():
            return step(*args, **kwargs)

    def undo() -> None:
        if own is None:
            del optimizer.__dict__["step"]
        else:
            optimizer.step = own  # type: ignore[method-assign]

    optimizer.step = gather  # type: ignore[method-assign]
    return Applied(undo)


def _trained(fork: Fork) -> list[Tensor]:
    return [one for group in fork.optimizer.param_groups for one in group["params"] if one.grad is not None]
