"""Small changes of a finished run that several plans use."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.faults.setup import Loss, Setup, Step

Change = Callable[[Setup], Setup]


def with_groups(**values: Any) -> Change:
    """Sets values of the optimiser, such as its rate."""

    def change(setup: Setup) -> Setup:
        for group in setup.optimizer.param_groups:
            group.update(values)
        return setup

    return change


def rate_times(factor: float) -> Change:
    def change(setup: Setup) -> Setup:
        for group in setup.optimizer.param_groups:
            group["lr"] *= factor
        return setup

    return change


def with_modules(kind: type[nn.Module], **values: Any) -> Change:
    """Sets attributes of all modules of a kind."""

    def change(setup: Setup) -> Setup:
        for module in modules(setup.model, kind):
            for name, value in values.items():
                setattr(module, name, value)
        return setup

    return change


def modules(model: nn.Module, kind: type[nn.Module]) -> list[Any]:
    return [module for module in model.modules() if isinstance(module, kind)]


def scaled(model: nn.Module, factor: float, *names: str) -> None:
    """Multiplies the parameters whose names end so."""
    found = [value for name, value in model.named_parameters() if name.endswith(names)]
    if not found:
        raise ValueError(f"no parameter ends with {names}.")
    with torch.no_grad():
        for value in found:
            value.mul_(factor)


def with_batches(change: Callable[[Any], Any]) -> Change:
    """Changes every batch."""
    return lambda setup: replace(setup, batches=[change(batch) for batch in setup.batches])


def with_inputs(change: Callable[[Tensor], Tensor]) -> Change:
    return with_batches(lambda batch: _with(batch, 0, ("input_ids", "pixel_values"), change))


def with_labels(change: Callable[[Tensor], Tensor]) -> Change:
    return with_batches(lambda batch: _with(batch, 1, ("labels",), change))


def _with(batch: Any, place: int, keys: Iterable[str], change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, dict):
        return {key: change(value) if key in keys else value for key, value in batch.items()}
    return tuple(change(value) if index == place else value for index, value in enumerate(batch))


def with_loss(loss: Loss) -> Change:
    return lambda setup: replace(setup, loss=loss)


def with_optimizer(parameters: Callable[[nn.Module], Iterable[Tensor]]) -> Change:
    """An optimiser of the same kind and settings that holds other parameters."""

    def change(setup: Setup) -> Setup:
        old = setup.optimizer
        kind: Any = type(old)
        known = inspect.signature(kind).parameters
        settings = {name: value for name, value in old.param_groups[0].items() if name in known and name != "params"}
        return replace(setup, optimizer=kind(list(parameters(setup.model)), **settings))

    return change


def with_step(make: Callable[[Loss, Optimizer], Step]) -> Change:
    """A loop of its own."""
    return lambda setup: replace(setup, step=make(setup.loss, setup.optimizer))


def one_after_another(*changes: Change) -> Change:
    def change(setup: Setup) -> Setup:
        for each in changes:
            setup = each(setup)
        return setup

    return change


def few_rows(setup: Setup, rows: int, share: float = 1.0) -> Setup:
    """A share of the rows of every batch are copies of a few rows of the first batch."""
    batches: Sequence[Any] = list(setup.batches)
    parts = [batch.values() if isinstance(batch, dict) else batch for batch in batches]
    few = [value[:rows] for value in parts[0]]
    generator = torch.Generator().manual_seed(rows)
    for batch in parts:
        size = len(few[0])
        length = len(next(iter(batch)))
        copied = torch.rand(length, generator=generator) < share
        which = torch.randint(size, (length,), generator=generator)
        for value, source in zip(batch, few, strict=True):
            value[copied] = source[which[copied]].clone()
    return replace(setup, batches=batches)
