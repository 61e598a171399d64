"""What a user hands over: a model with its data and loop, a trainer of Hugging Face, or a Lightning module with its data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any

from eureka.errors import RequestError

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

    from eureka.forks.case import Loss, Step


@dataclass(frozen=True)
class Setup:
    """A training run that is handed over: what `eureka.diagnose` and `eureka.race` look at.

    Args:
        model: as it is now
        batches: a list or a DataLoader
        loss: ``lambda model, batch: …`` returns the loss as training computes it
        step: in place of `loss`: ``lambda model, optimizer, batch: …`` does everything that the loop does in a step
        optimizer: the one that trains the model
        log: the loss so far: a list of numbers, or a file that `eureka detect` can read
    """

    model: nn.Module
    batches: Iterable[Any]
    _: KW_ONLY
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

    held: frozenset[str] = frozenset()
    """the names of parameters that another optimiser trains, in steps of its own"""
    source_rows: float = math.inf
    """how many rows the batches are drawn from; 0 if that is not known"""
    forgets: str = ""
    """what a trainer forgets of a remedy that is applied, in a sentence"""
    rate_by_hand: str = ""
    """a line of code that changes the rate of a trainer, with {change} in the place of "*= 10"; empty without a trainer"""
    decay_by_hand: str = ""
    """the same for the weight decay, with {value} in the place of a number"""
    parameters_by_hand: str = ""
    """a line that gives the optimiser of a trainer the parameters that it lacks; empty without a trainer"""

    @classmethod
    def from_trainer(cls, trainer: Any, batches: Any = None, *, log: Any = None) -> Setup:
        """Return the run of a Trainer of Hugging Face, before, during or after `train()`."""
        from eureka.forks.hugging_face import from_trainer

        if not is_trainer(trainer):
            raise RequestError(f"from_trainer takes a Trainer of transformers, not a {type(trainer).__name__}.")
        return from_trainer(trainer, batches, log)

    @classmethod
    def from_lightning(cls, module: Any, batches: Any = None, *, optimizer: Optimizer | None = None, log: Any = None) -> Setup:
        """Return the run of a Lightning module; `batches` may be its data module."""
        from eureka.forks.lightning import from_module

        if not is_lightning(module):
            raise RequestError(f"from_lightning takes a LightningModule, not a {type(module).__name__}.")
        return from_module(module, batches, optimizer, log)

    @classmethod
    def load(cls, text: str) -> Setup:
        """Return the run that a function returns, by its name as in ``module:function``."""
        from eureka.forks.loading import load_case

        return load_case(text)

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
        if any(one is not None for one in (batches, loss, optimizer, step)):
            raise RequestError("batches, loss, optimizer and step are part of the Setup; leave them out.")
        return _with_lasting_rate(model)
    if is_trainer(model):
        from eureka.forks.hugging_face import from_trainer

        _refuse(loss, optimizer, step, whose="the Trainer's own")
        return from_trainer(model, batches, log)
    if is_lightning(model) and loss is None and step is None:
        from eureka.forks.lightning import from_module

        return from_module(model, batches, optimizer, log)
    if batches is None:
        raise RequestError("batches is missing; pass a list of batches or a DataLoader.")
    return _with_lasting_rate(Setup(model, batches, loss=loss, step=step, optimizer=optimizer, log=log))


def _with_lasting_rate(setup: Setup) -> Setup:
    """The run at the rate that its warm-up leads to."""
    if setup.step is not None or setup.optimizer is None or setup.own_optimizer is not None:
        return setup  # a step may move the rates of the user's optimiser itself
    from eureka.forks.rates import warmed_up

    warm, notes = warmed_up(setup.optimizer)
    if warm is setup.optimizer:
        return setup
    return replace(setup, optimizer=warm, notes=(*setup.notes, *notes), own_optimizer=setup.optimizer)


def is_trainer(model: Any) -> bool:
    """Whether it is a Trainer of Hugging Face, or of a subclass."""
    return _is_a(model, "Trainer", "transformers")


def is_lightning(model: Any) -> bool:
    """Whether it is a Lightning module."""
    return _is_a(model, "LightningModule", "lightning", "pytorch_lightning")


def _is_a(model: Any, name: str, *packages: str) -> bool:
    """Whether a class of that name and package is among the classes of a model; imports nothing."""
    return any(cls.__name__ == name and cls.__module__.split(".")[0] in packages for cls in type(model).__mro__)


def _refuse(*others: Any, whose: str) -> None:
    if any(other is not None for other in others):
        raise RequestError(f"loss, optimizer and step are {whose}; leave them out, or pass the model instead of the Trainer.")
