"""Keep what a user's own step changes besides the copies that it is given: schedulers, scalers, the optimiser's settings."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


@contextmanager
def kept_loop(step: Callable[..., Any] | None, optimizer: Optimizer | None) -> Iterator[None]:
    """Afterwards the objects that a step refers to, and the groups of the optimiser, are as they were."""
    holders = [] if step is None else list(_stateful(step))
    states = [copy.deepcopy(holder.state_dict()) for holder in holders]
    groups = [] if optimizer is None else [{k: v for k, v in group.items() if k != "params"} for group in optimizer.param_groups]
    try:
        yield
    finally:
        for holder, state in zip(holders, states, strict=True):
            holder.load_state_dict(state)
        for group, kept in zip(optimizer.param_groups if optimizer is not None else [], groups, strict=True):
            group.update(kept)


def schedulers_of(step: Callable[..., Any] | None) -> list[LRScheduler]:
    """The schedulers that a step refers to; they move the rate of the user's optimiser, not of a copy."""
    return [] if step is None else [one for one in _stateful(step) if isinstance(one, LRScheduler)]


def _stateful(step: Callable[..., Any]) -> Iterator[Any]:
    """Schedulers and the like that a function refers to; models and optimisers are given to it as copies."""
    try:
        found = inspect.getclosurevars(step)
    except TypeError:
        return
    for value in {**found.globals, **found.nonlocals}.values():
        keeps_state = all(callable(getattr(value, name, None)) for name in ("state_dict", "load_state_dict"))
        if keeps_state and not inspect.isclass(value) and not isinstance(value, nn.Module | Optimizer):
            yield value
