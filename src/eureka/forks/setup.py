"""What a user hands over: a model with its data and loop, a trainer of Hugging Face, or a Lightning module with its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eureka.errors import RequestError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from eureka.forks.case import Loss, Step


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The arguments of `eureka.diagnose` and `eureka.race`, by their names."""

    model: nn.Module
    batches: Iterable[Any]
    loss: Loss | None = None
    step: Step | None = None
    optimizer: Optimizer | None = None
    log: Any = None
    notes: tuple[str, ...] = ()
    """what was read or chosen for the user, a sentence each"""
    own_optimizer: Optimizer | None = None
    """the one that goes on training, where `optimizer` is another object over the same parameters, at a rate that lasts"""
    adopt: Callable[[], Callable[[], None]] | None = None
    """makes a trainer that has no optimiser yet train with this one; returns what takes that back"""

    forgets: str = ""
    """what a trainer forgets of a remedy that is applied, in a sentence"""
    rate_by_hand: str = ""
    """a line of code that changes the rate of a trainer, with {change} in the place of "*= 10"; empty without a trainer"""
    decay_by_hand: str = ""
    """the same for the weight decay, with {value} in the place of a number"""
    parameters_by_hand: str = ""
    """a line that gives the optimiser of a trainer the parameters that it lacks; empty without a trainer"""

    @property
    def trained_by(self) -> Optimizer | None:
        """The optimiser that a remedy has to be applied to."""
        return self.own_optimizer if self.own_optimizer is not None else self.optimizer


def hand_over(
    model: Any,
    batches: Any = None,
    *,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    step: Step | None = None,
    log: Any = None,
) -> Setup:
    """What was given, as arguments for any loop; a trainer brings its own model, data, loss and optimiser.

    model   a module, a trainer, a Lightning module, or a `Setup`, which is returned
    """
    if isinstance(model, Setup):
        return model
    if is_trainer(model):
        from eureka.forks.hugging_face import from_trainer

        _refuse(loss, optimizer, step, whose="the Trainer's own")
        return from_trainer(model, batches, log)
    if _is_a(model, "LightningModule", "lightning", "pytorch_lightning") and loss is None and step is None:
        from eureka.forks.lightning import from_module

        return from_module(model, batches, optimizer, log)
    if batches is None:
        raise RequestError("batches is missing; pass a list of batches or a DataLoader.")
    if step is not None or optimizer is None:  # a step may move the rates of the user's optimiser itself
        return Setup(model=model, batches=batches, loss=loss, step=step, optimizer=optimizer, log=log)
    from eureka.forks.rates import warmed_up

    warm, notes = warmed_up(optimizer)
    return Setup(
        model=model,
        batches=batches,
        loss=loss,
        optimizer=warm,
        log=log,
        notes=notes,
        own_optimizer=None if warm is optimizer else optimizer,
    )


def is_trainer(model: Any) -> bool:
    """Whether it is a Trainer of Hugging Face, or of a subclass."""
    return _is_a(model, "Trainer", "transformers")


def _is_a(model: Any, name: str, *packages: str) -> bool:
    """Whether a class of that name and package is among the classes of a model; imports nothing."""
    return any(cls.__name__ == name and cls.__module__.split(".")[0] in packages for cls in type(model).__mro__)


def _refuse(*others: Any, whose: str) -> None:
    if any(other is not None for other in others):
        raise RequestError(f"loss, optimizer and step are {whose}; leave them out, or pass the model instead of the Trainer.")
