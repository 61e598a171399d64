"""A Lightning module with its data as a case: its own training step, without the trainer that it logs to."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_map

from eureka.errors import RequestError
from eureka.forks.accumulated import Accumulated
from eureka.forks.quiet import Quiet, Reader
from eureka.forks.rates import at_lasting_rates
from eureka.forks.setup import Setup

ALONE: dict[str, Any] = {
    "global_step": 0,
    "current_epoch": 0,
    "max_epochs": 1,
    "max_steps": 1_000,
    "num_training_batches": 1_000,
    "estimated_stepping_batches": 1_000,
    "world_size": 1,
    "num_devices": 1,
    "global_rank": 0,
    "is_global_zero": True,
    "training": True,
    "sanity_checking": False,
}
"""What a module is told that has no Trainer yet."""
FORGETS = "Each fit() of Lightning makes a new optimiser: a rate or decay that helped has to be set in configure_optimizers too."


def from_module(module: Any, data: Any, optimizer: Optimizer | None, log: Any) -> Setup:
    """The module as it is now; nothing of it, of its trainer or of its data is changed."""
    trainer = module._trainer
    loader = _loader(module, data)
    notes: tuple[str, ...] = ()
    own = optimizer
    if own is None:
        own, scheduler = _attached(trainer) or _configured(module)
        optimizer, notes = at_lasting_rates(own, scheduler, _steps(trainer))
    if trainer is None:
        notes = (*notes, "The module has no Trainer yet: neither gradient clipping nor accumulation is assumed.")
    accumulated = max(_number(trainer, "accumulate_grad_batches", 1), 1)
    return Setup(
        model=module,
        batches=Accumulated(loader, accumulated),
        step=ModuleStep(trainer),
        optimizer=optimizer,
        log=log,
        notes=notes,
        own_optimizer=own,
        forgets="" if optimizer is own and _is_fitting(trainer) else FORGETS,
        rate_by_hand="lr {change}  # in configure_optimizers",
        decay_by_hand="weight_decay = {value}  # in configure_optimizers",
        parameters_by_hand="optimizer = …  # over self.parameters(), in configure_optimizers",
    )


def _is_fitting(trainer: Any) -> bool:
    return bool(getattr(trainer, "training", False))


def _number(trainer: Any, name: str, otherwise: int) -> int:
    value = getattr(trainer, name, otherwise)
    return int(value) if isinstance(value, int | float) and abs(value) < float("inf") else otherwise


def _steps(trainer: Any) -> int:
    """How many steps training takes; 0 if nobody knows."""
    if trainer is None:
        return 0
    by_epochs = _number(trainer, "max_epochs", -1) * _number(trainer, "num_training_batches", 0)
    known = [steps for steps in (_number(trainer, "max_steps", -1), by_epochs) if steps > 0]
    return min(known, default=0)


def _loader(module: Any, data: Any) -> Any:
    """The training data: of a loader, of a data module, or of the trainer that the module was trained by."""
    if data is None:
        data = getattr(module._trainer, "datamodule", None) or getattr(module._trainer, "train_dataloader", None)
    if data is None and module._trainer is None:
        raise RequestError("the data of the module is missing; pass it too: diagnose(module, datamodule_or_loader).")
    if callable(getattr(data, "train_dataloader", None)):
        data = _of_data_module(data)
    if isinstance(data, dict) or (isinstance(data, list | tuple) and any(hasattr(one, "dataset") for one in data)):
        from lightning.pytorch.utilities import CombinedLoader

        data = CombinedLoader(data, "max_size_cycle")
    return Combined(data) if type(data).__name__ == "CombinedLoader" else data


def _of_data_module(data: Any) -> Any:
    """On a copy of the data module, which is set up if nobody did that yet."""
    own = copy.copy(data)
    if getattr(own, "trainer", None) is None:
        own.prepare_data()
        own.setup("fit")
    return own.train_dataloader()


class Combined:
    """The batches of several loaders, without their numbers."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return (batch for batch, *_ in copy.copy(self.loader))


def _attached(trainer: Any) -> tuple[Optimizer, Any] | None:
    """The optimiser and the scheduler of a trainer that has trained the module, or is training it."""
    found = list(getattr(trainer, "optimizers", None) or [])
    if not found:
        return None
    configs = getattr(trainer, "lr_scheduler_configs", None) or []
    scheduler = configs[0].scheduler if configs and configs[0].interval == "step" else None
    return _only(found), scheduler


def _configured(module: Any) -> tuple[Optimizer, Any]:
    """What `configure_optimizers` returns, in any of its forms, asked of a copy that shares the parameters."""
    own = copy.copy(module)
    for name in ("_parameters", "_buffers", "_modules"):
        own.__dict__[name] = dict(own.__dict__[name])
    own.__dict__["_trainer"] = Reader(None, **ALONE)
    found = own.configure_optimizers()
    if isinstance(found, dict):
        found = [found]
    scheduler = None
    if isinstance(found, list | tuple) and len(found) == 2 and isinstance(found[0], list | tuple):
        found, scheduler = found[0], (list(found[1]) or [None])[0] if isinstance(found[1], list | tuple) else found[1]
    each = found if isinstance(found, list | tuple) else [found]
    first = each[0] if each else None
    if isinstance(first, dict):
        scheduler = first.get("lr_scheduler")
    optimizers = [one["optimizer"] if isinstance(one, dict) else one for one in each if one is not None]
    scheduler = scheduler.get("scheduler") if isinstance(scheduler, dict) else scheduler
    return _only(optimizers), scheduler


def _only(optimizers: list[Any]) -> Optimizer:
    if len(optimizers) != 1:
        raise RequestError(
            f"configure_optimizers returns {len(optimizers) or 'no'} optimizers, and an experiment takes one;"
            " pass step=lambda model, optimizer, batch: … and optimizer=…, which may be two in one (eureka.forks.joined.Joined)."
        )
    found: Optimizer = getattr(optimizers[0], "_optimizer", optimizers[0])
    return found


class ModuleStep:
    """What Lightning's loop does in one step of the optimiser, but for schedulers, callbacks and loggers."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.made: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()

    def __call__(self, model: Any, optimizer: Optimizer, batch: Any) -> Tensor:
        number = self.made.get(optimizer, 0)
        self.made[optimizer] = number + 1
        self._detach(model, optimizer, number)
        parts = batch if isinstance(batch, list) and _number(self.trainer, "accumulate_grad_batches", 1) > 1 else [batch]
        if not model.automatic_optimization:
            return self._loss(model, parts[0], number).detach()
        optimizer.zero_grad()
        total = torch.zeros(())
        for place, part in enumerate(parts):
            loss = self._loss(model, part, number * len(parts) + place) / len(parts)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total + loss.detach().cpu()
        self._clip(model)
        optimizer.step()
        return total

    def _detach(self, model: Any, optimizer: Optimizer, number: int) -> None:
        """Give a copy of the module a trainer that only tells numbers, and loggers that hear nothing."""
        told = {} if self.trainer is not None else ALONE
        model._trainer = Reader(self.trainer, **{**told, "global_step": _number(self.trainer, "global_step", 0) + number})
        model.log = model.log_dict = model.lr_schedulers = Quiet()
        model.optimizers = lambda *args, **kwargs: optimizer
        model.manual_backward = lambda loss, *args, **kwargs: loss.backward(*args, **kwargs)
        model.clip_gradients = lambda _, gradient_clip_val=None, gradient_clip_algorithm=None: _clip(
            model, gradient_clip_val, gradient_clip_algorithm
        )

    def _loss(self, model: Any, batch: Any, number: int) -> Tensor:
        batch = tree_map(lambda one: one, batch)  # a step may take things out of its batch
        batch = model.on_before_batch_transfer(batch, 0)
        batch = model.on_after_batch_transfer(model.transfer_batch_to_device(batch, model.device, 0), 0)
        precision = getattr(self.trainer, "precision_plugin", None)
        wanted = inspect.signature(model.training_step).parameters
        with precision.forward_context() if precision is not None else contextlib.nullcontext():
            model.train(model.training)
            result = model.training_step(batch, number) if len(wanted) > 1 else model.training_step(batch)
        loss = result.get("loss") if isinstance(result, dict) else result
        if not isinstance(loss, Tensor):
            raise RequestError(f"training_step returns a {type(result).__name__} without a loss.")
        return loss

    def _clip(self, model: nn.Module) -> None:
        _clip(
            model,
            getattr(self.trainer, "gradient_clip_val", None),
            getattr(self.trainer, "gradient_clip_algorithm", None),
        )


def _clip(model: nn.Module, limit: float | None, algorithm: Any) -> None:
    if not limit:
        return
    if "value" in str(algorithm).lower():
        torch.nn.utils.clip_grad_value_(model.parameters(), limit)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
