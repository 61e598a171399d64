"""A line of code that changes a rate or a decay where it is decided: trainers and schedulers overwrite what the optimiser has."""

from __future__ import annotations

import re
from typing import Any

from torch.optim.lr_scheduler import CyclicLR, OneCycleLR, ReduceLROnPlateau

from eureka.forks.given import Given
from eureka.forks.kept import schedulers_of

PLAIN = re.compile(r"for group in optimizer\.param_groups: group\['lr'\] (?P<change>(?P<sign>\*?=) (?P<value>\S+))")
"""How it is done without either."""
DECAY = re.compile(r"for group in optimizer\.param_groups: group\['weight_decay'\] = (?:min\(.*, )?(?P<value>[\d.e-]+)\)?")


def settings_code(code: str, given: Given) -> str:
    """The same for the run that was given; other code stays as it is.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-6)
    >>> given = Given(model=torch.nn.Linear(1, 1), batches=[1], optimizer=optimizer)
    >>> code = "for group in optimizer.param_groups: group['lr'] *= 10"
    >>> settings_code(code, given) == code
    True
    >>> scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    >>> settings_code(code, given)
    "for i, group in enumerate(optimizer.param_groups): group['lr'] *= 10; scheduler.base_lrs[i] *= 10"
    """
    decay, found = DECAY.fullmatch(code), PLAIN.fullmatch(code)
    if decay is not None and given.decay_by_hand:
        return given.decay_by_hand.format(value=decay["value"])
    if found is None:
        return code
    if given.rate_by_hand:
        return given.rate_by_hand.format(change=found["change"])
    groups = [] if given.trained_by is None else given.trained_by.param_groups
    schedulers = schedulers_of(given.step)
    if not schedulers and not any("initial_lr" in group for group in groups):
        return code
    if found["sign"] == "=" and any(group.get("initial_lr") and not group["lr"] for group in groups):  # the schedule has ended
        return f"{code}  # and no more scheduler.step()"
    return _scheduled(code, found, schedulers[0] if schedulers else None, any("max_lr" in group for group in groups))


def _scheduled(code: str, found: re.Match[str], scheduler: Any, cycles: bool) -> str:
    """With a scheduler, which may be None where only what it left in the optimiser is known."""
    if isinstance(scheduler, ReduceLROnPlateau):  # it multiplies the rate of now
        return code
    if cycles or isinstance(scheduler, OneCycleLR | CyclicLR) or not (scheduler is None or hasattr(scheduler, "base_lrs")):
        rate = f"{found['value']} times the rate" if found["sign"] == "*=" else f"a rate of {found['value']}"
        return f"optimizer, scheduler = …  # made anew, at {rate}"
    change = found["change"]
    return f"for i, group in enumerate(optimizer.param_groups): group['lr'] {change}; scheduler.base_lrs[i] {change}"
