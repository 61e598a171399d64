"""The learning rate that experiments of a few steps go on with, where a schedule has one for every step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from eureka.formats import rate

Schedule = Callable[[int], float]
"""The rate of a step."""
POINTS = 200
"""Steps of a long schedule that its mean is taken over."""


def lasting_rate(schedule: Schedule, now: int, steps: int) -> tuple[float, str]:
    """The rate of now; during a warm-up, and after the end, the mean of the schedule. A note says so.

    A few steps at the rates of a warm-up, or of an ended schedule, would say nothing about the run.

    >>> lasting_rate(lambda step: 1e-3 * (1 - step / 100), 50, 100)
    (0.0005, '')
    >>> lasting_rate(lambda step: 1e-3 * (1 - step / 100), 100, 100)[1]
    'The schedule has ended at a learning rate of 0; the experiments go on at its mean, 5.05e-4.'
    """
    last = max(steps, 1)
    sampled = [schedule(round(i * (last - 1) / (POINTS - 1))) for i in range(POINTS)]
    here, mean = schedule(min(now, last)), sum(sampled) / POINTS
    if now >= last and here < 0.95 * mean:
        return mean, _note(f"has ended at a learning rate of {_told(here)}", mean)
    later = [schedule(now + round(i * (last - now) / POINTS)) for i in range(1, POINTS + 1)] if now < last else []
    if later and max(later) > 1.05 * here and here < 0.95 * mean:
        return mean, _note(f"is warming up, at {_told(here)} now", mean)
    return here, ""


def _note(state: str, mean: float) -> str:
    return f"The schedule {state}; the experiments go on at its mean, {_told(mean)}."


def _told(value: float) -> str:
    return rate(float(f"{value:.3g}")) if value else "0"


def at_lasting_rates(optimizer: Optimizer, scheduler: Any, steps: int) -> tuple[Optimizer, tuple[str, ...]]:
    """The optimiser as it is, or one over the same parameters and state at the rates that last; and notes."""
    if not isinstance(scheduler, LambdaLR) or steps < 1:
        return optimizer, ()
    found = [lasting_rate(_of(scheduler, i), scheduler.last_epoch, steps) for i in range(len(scheduler.base_lrs))]
    notes = tuple(dict.fromkeys(note for _, note in found if note))
    return (with_rates(optimizer, [value for value, _ in found]) if notes else optimizer), notes[:1]


def _of(scheduler: LambdaLR, group: int) -> Schedule:
    base, factor = float(scheduler.base_lrs[group]), scheduler.lr_lambdas[group]
    return lambda step: base * float(factor(step))


def with_rates(optimizer: Optimizer, rates: Sequence[float]) -> Optimizer:
    """The same parameters and state in another object, whose groups have these rates; the given one is left alone."""
    other = copy.copy(optimizer)
    other.param_groups = [{**group, "lr": value} for group, value in zip(optimizer.param_groups, rates, strict=True)]
    return other


def bare_copy(optimizer: Optimizer) -> Optimizer:
    """Groups with the same rates over nothing: a scheduler can be made for it without touching the real one."""
    groups = [{"params": [torch.zeros(1)], "lr": group["lr"]} for group in optimizer.param_groups]
    return torch.optim.SGD(groups, lr=0.0)
