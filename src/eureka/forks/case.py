"""A case: the model, data and loop that a user hands over, and copies of them to experiment on."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from eureka import random_state
from eureka.errors import RequestError
from eureka.forks.copies import deep_copies
from eureka.forks.generators import generators_of, restorer
from eureka.forks.held import Held
from eureka.forks.quiet import copied

Loss = Callable[[nn.Module, Any], Tensor]
"""The loss of a model on a batch."""
Step = Callable[[nn.Module, Optimizer, Any], Any]
"""One whole step of the user's loop on a batch; returns the loss."""


@dataclass(frozen=True)
class Fork:
    """Copies that may be changed."""

    model: nn.Module
    optimizer: Optimizer
    inputs: Any = None
    """what the model is called with on the first batch (`forks/inputs.py`), where that was asked for"""

    def hold(self) -> None:
        """From now on the optimiser's step does nothing."""
        self.optimizer.step = stay  # type: ignore[method-assign]


def stay(closure: Callable[[], Any] | None = None, **_: Any) -> Any:
    """A step of an optimiser that changes no weight; the closure that some are given computes the loss."""
    with torch.enable_grad():
        return None if closure is None else closure()


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the user handed over. Nothing here is ever changed: experiments work on a `fork`."""

    model: nn.Module
    batches: Sequence[Any]
    """the first batches of the user's data, in their order"""
    optimizer: Optimizer
    loss: Loss | None
    step: Step | None
    assumed: tuple[str, ...] = ()
    """what was not given and had to be assumed, a sentence each"""
    held: frozenset[str] = frozenset()
    """the names of parameters that another optimiser trains, in steps of its own"""
    source_rows: float = math.inf
    """how many rows there are to draw batches from: rows that repeat although there are more are a fault"""

    def fork(self) -> Fork:
        """Copies of the model and its optimiser, as they are now."""
        model, optimizer = deep_copies(self.model, self.optimizer)
        for hook in copied_hooks(self.optimizer._optimizer_step_pre_hooks):
            optimizer.register_step_pre_hook(hook)
        for hook in copied_hooks(self.optimizer._optimizer_step_post_hooks):
            optimizer.register_step_post_hook(hook)
        return Fork(model, optimizer)

    def train(self, fork: Fork, batch: Any) -> Tensor:
        """One step of the user's loop on a fork; the loss before it. A step may use its batch up: it gets a copy."""
        batch = copied(batch)
        if self.step is not None:
            return _as_loss(self.step(fork.model, fork.optimizer, batch))
        fork.optimizer.zero_grad(set_to_none=True)
        loss = self._loss_on(fork.model, batch)
        if loss.requires_grad:  # else nothing has a gradient, which is a finding
            loss.backward()  # type: ignore[no-untyped-call]
        fork.optimizer.step()
        return loss.detach()

    def loss_of(self, model: nn.Module, batch: Any) -> Tensor:
        """The loss, by the user's function, of a copy of a batch."""
        return self._loss_on(model, copied(batch))

    def _loss_on(self, model: nn.Module, batch: Any) -> Tensor:
        assert self.loss is not None
        loss = self.loss(model, batch)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            what = _what(loss) if isinstance(loss, Tensor) else type(loss).__name__
            raise RequestError(f"loss returns {what}; it must return one number as a tensor.")
        return loss


def _as_loss(returned: Any) -> Tensor:
    """What a step returns, if it is one number."""
    try:
        found = torch.as_tensor(returned).detach()
    except (TypeError, ValueError, RuntimeError):
        found = None
    if found is None or found.numel() != 1:
        raise RequestError(f"step returns {_what(returned)}; it must return the loss: one number, or a tensor of one.")
    return found


def _what(returned: Any) -> str:
    if isinstance(returned, Tensor):
        return f"a tensor of shape {tuple(returned.shape)}"
    return "nothing" if returned is None else f"a {type(returned).__name__}"


GOES_ALONG = "goes_along_with_copies"
"""A hook with this attribute works on any optimiser that it is called with; torch leaves hooks out of copies."""


def copied_hooks(hooks: Mapping[int, Any]) -> list[Any]:
    """Those of a remedy that is in force."""
    return [hook for hook in hooks.values() if getattr(hook, GOES_ALONG, False)]


def make_case(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss: Loss | None,
    optimizer: Optimizer | None,
    step: Step | None,
    most: int,
    held: frozenset[str] = frozenset(),
    source_rows: float = math.inf,
) -> Case:
    """Check what was given, and take the first `most` batches."""
    if not isinstance(model, nn.Module):
        raise RequestError(f"model is a {type(model).__name__}, not a torch.nn.Module.")
    lazy = next((name for name, one in model.named_parameters() if isinstance(one, UninitializedParameter)), None)
    if lazy is not None:
        raise RequestError(f"{lazy} has no weights yet, as its layer is lazy; run the model once on a batch, then give it.")
    if (loss is None) == (step is None):
        what = "both were given" if loss is not None else "neither was given"
        raise RequestError(f"give loss=lambda model, batch: … or step=lambda model, optimizer, batch: …; {what}.")
    if step is not None and optimizer is None:
        raise RequestError("step=… needs optimizer=… too: a copy of it is passed to the step.")
    assumed: tuple[str, ...] = ()
    if optimizer is None:
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
        assumed = ("No optimizer was given: AdamW at 1e-3 is assumed, and nothing is said about yours.",)
    return Case(
        model=model, batches=take(batches, most), optimizer=optimizer, loss=loss, step=step, assumed=assumed,
        held=held, source_rows=source_rows,
    )  # fmt: skip


def take(batches: Iterable[Any], most: int) -> list[Any]:
    """Copies of the first batches; a data loader begins anew the next time, with the same random numbers."""
    if any(isinstance(one, Iterator) for one in _whence(batches)):
        raise RequestError(
            "batches is an iterator, and what is read from it would be missing from training; pass a list or a DataLoader."
        )
    if not isinstance(batches, Iterable):
        raise RequestError(f"batches is a {type(batches).__name__}; pass a list of batches or a DataLoader.")
    held = Held([*_whence(batches)])
    with kept_random_state(batches), _workers_ended(batches):
        try:
            found = [copied(batch) for batch in itertools.islice(iter(batches), most)]
        finally:
            held.put_back()
    if not found:
        raise RequestError("batches is empty; at least one batch is needed.")
    return found


def _whence(batches: Any) -> Iterator[Any]:
    """Batches, and what they are read from: a data loader reads from a data set, which may be a stream."""
    yield batches
    for name in ("loader", "dataset"):
        if (source := getattr(batches, name, None)) is not None:
            yield from _whence(source)


@contextmanager
def _workers_ended(batches: Any) -> Iterator[None]:
    """A data loader with persistent workers keeps those of its first pass; that shall be the user's own."""
    loaders = [one for one in _whence(batches) if isinstance(one, DataLoader) and one._iterator is None]
    try:
        yield
    finally:
        for loader in loaders:
            loader._iterator = None


@contextmanager
def kept_random_state(around: Any = None) -> Iterator[None]:
    """`eureka.random_state.kept_random_state`, and the generators that `around` holds.

    around   a data loader or the like: the generators of it, its data set, sampler or collator
    """
    restore = [restorer(one) for one in generators_of(around)]
    try:
        with random_state.kept_random_state():
            yield
    finally:
        for put_back in restore:
            put_back()


@contextmanager
def seeded(seed: int = 0) -> Iterator[None]:
    """Inside, all random numbers begin at one and the same state, so that two experiments can be compared in pairs."""
    import numpy as np

    with kept_random_state():
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        yield
