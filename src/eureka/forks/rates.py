"""The learning rate that experiments of a few steps go on with, where a schedule has one for every step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.optim import LBFGS, Optimizer
from torch.optim.lr_scheduler import LambdaLR

from eureka.formats import rate

Schedule = Callable[[int], float]
"""The rate of a step."""
POINTS = 200
"""Steps of a long schedule that its mean is taken over."""
OVER = 0.03
"""A rate below this share of the one that its schedule began with is that of the schedule's end, where it is no warm-up."""
FACTOR = 0.5
"""A base rate from here on is a factor of the schedule and no rate: the original Transformer's is 1."""


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


def first_rate(group: Mapping[str, Any]) -> float:
    """The rate of a group that its schedule began with, or the peak of a cycle; 0 if no scheduler has left it."""
    return float(group.get("max_lr", group.get("initial_lr", 0.0)))


def begins_at_zero(optimizer: Optimizer) -> bool:
    """Whether a schedule is at its beginning and has set every rate to 0: a warm-up, before the first step."""
    groups = optimizer.param_groups
    begun = bool(optimizer.state) or getattr(optimizer, "_opt_called", False)  # a scheduler has torch take note of steps
    return not begun and not any(group["lr"] for group in groups) and any(first_rate(group) for group in groups)


def warmed_up(optimizer: Optimizer) -> tuple[Optimizer, tuple[str, ...]]:
    """The optimiser as it is, or, where a warm-up begins at 0, one over the same parameters at the base rates; and notes."""
    others = not type(optimizer).__module__.startswith("torch.optim") or isinstance(optimizer, LBFGS)  # they hold more
    if others or not begins_at_zero(optimizer):
        return optimizer, ()
    rates = [first_rate(group) for group in optimizer.param_groups]
    if max(rates) >= FACTOR:
        return optimizer, ()
    note = f"The schedule is warming up, at 0 now; the experiments go on at its base rate, {_told(max(rates))}."
    return with_rates(optimizer, rates), (note,)


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
