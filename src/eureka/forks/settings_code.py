"""A line of code that changes a rate, a decay or the parameters where that is decided: trainers and schedulers have a say."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR, ReduceLROnPlateau

from eureka.forks.kept import schedulers_of
from eureka.forks.rates import OVER, begins_at_zero, first_rate
from eureka.forks.setup import Setup

PLAIN = re.compile(r"for group in optimizer\.param_groups: group\['lr'\] (?P<change>(?P<sign>\*?=) (?P<value>\S+))")
"""How it is done without either."""
MISSING = re.compile(r"optimizer\.add_param_group\(\{'params': (?P<list>\[.*\])\}\)")
"""How parameters are added as a group, which a scheduler that is there already does not know."""
DECAY = re.compile(r"for group in optimizer\.param_groups: group\['weight_decay'\] = (?:min\(.*, )?(?P<value>[\d.e-]+)\)?")


def settings_code(code: str, given: Setup) -> str:
    """The same for the run that was given; other code stays as it is.

    >>> import torch
    >>> optimizer = torch.optim.SGD([torch.zeros(1)], lr=1e-6)
    >>> given = Setup(model=torch.nn.Linear(1, 1), batches=[1], optimizer=optimizer)
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
    missing = MISSING.search(code)
    if missing is not None and given.parameters_by_hand:
        return given.parameters_by_hand
    if found is not None and given.rate_by_hand:
        return given.rate_by_hand.format(change=found["change"])
    groups = [] if given.trained_by is None else given.trained_by.param_groups
    schedulers = schedulers_of(given.step)
    if not schedulers and not any("initial_lr" in group for group in groups):
        return code
    if missing is not None:
        return code.replace(missing[0], f"optimizer.param_groups[0]['params'] += {missing['list']}")
    if found is None:
        return code
    if found["sign"] == "=" and _is_over(given.trained_by, float(found["value"])):
        return f"{code}  # and no more scheduler.step()"
    return _scheduled(code, found, schedulers[0] if schedulers else None, groups)


def _is_over(optimizer: Optimizer | None, wanted: float) -> bool:
    """Whether a schedule has come to its end, or nearly and the rate that it began with is wanted: it sets none to train at."""
    if optimizer is None or begins_at_zero(optimizer):
        return False
    rates = [(float(group["lr"]), float(group.get("initial_lr", 0.0))) for group in optimizer.param_groups]
    return any(first > 0 and (not now or (now < OVER * first and wanted > 0.99 * first)) for now, first in rates)


def _is_lowered(found: re.Match[str], groups: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the rate is far below its schedule's first, and so many times as high still is: the base rate need not rise."""
    times = float(found["value"]) if found["sign"] == "*=" else math.inf
    return any(0 < group["lr"] < OVER * first_rate(group) and times * group["lr"] <= first_rate(group) for group in groups)


def _scheduled(code: str, found: re.Match[str], scheduler: Any, groups: Sequence[Mapping[str, Any]]) -> str:
    """With a scheduler, which may be None where only what it left in the optimiser is known."""
    if isinstance(scheduler, ReduceLROnPlateau):  # it multiplies the rate of now
        return code
    cycles = isinstance(scheduler, OneCycleLR | CyclicLR) or any("max_lr" in group for group in groups)
    if _is_lowered(found, groups):  # "times the rate" would be taken for times the schedule's first
        rate = float(found["value"]) * max(float(group["lr"]) for group in groups)
        return f"optimizer, scheduler = …  # made anew, at a rate of {rate:g}"
    if cycles or not (scheduler is None or hasattr(scheduler, "base_lrs")):
        told = f"{found['value']} times the rate" if found["sign"] == "*=" else f"a rate of {found['value']}"
        return f"optimizer, scheduler = …  # made anew, at {told}"
    change = found["change"]
    return f"for i, group in enumerate(optimizer.param_groups): group['lr'] {change}; scheduler.base_lrs[i] {change}"
