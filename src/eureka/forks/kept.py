"""Keep what a user's own functions change besides the copies that they are given: counters, logs, schedulers, averages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from eureka.forks.held import Held, functions_of
from eureka.forks.parking import parameters_beside


@contextmanager
def kept_loop(function: Callable[..., Any] | None, optimizer: Optimizer | None, model: nn.Module) -> Iterator[None]:
    """Afterwards what a loss or a step holds, and the groups of the optimiser, are as they were.

    model   the user's; it is handed over as copies, and the hooks on it are called by those. Parameters that the optimiser
            trains beside it, such as those of a loss, are put back too
    """
    own: list[Any] = [optimizer]
    more: list[Any] = []
    if isinstance(model, nn.Module):  # else it is refused later
        own += [*model.modules(), *model.parameters(), *model.buffers()]
        more = [*functions_of(model), *([] if optimizer is None else parameters_beside(model, optimizer))]
    held = Held([function, *more], own)
    groups = [] if optimizer is None else [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    try:
        yield
    finally:
        held.put_back()
        for group, kept in zip(optimizer.param_groups if optimizer is not None else [], groups, strict=True):
            group.update(kept)


def schedulers_of(step: Callable[..., Any] | None) -> list[LRScheduler]:
    """The schedulers that a step refers to; they move the rate of the user's optimiser, not of a copy."""
    if step is None:
        return []
    try:
        found = inspect.getclosurevars(step)
    except TypeError:  # no Python function
        return []
    return [one for one in {**found.globals, **found.nonlocals}.values() if isinstance(one, LRScheduler)]
