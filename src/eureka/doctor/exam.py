"""Measurements that several checks need, each made once and only when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from eureka.curves.grid import Array
from eureka.doctor.changes import both, fresh
from eureka.doctor.view import View, look
from eureka.forks.case import Case, Fork, seeded
from eureka.forks.trial import Change, Gain, Trace, gain, try_steps

T = TypeVar("T")

STEPS = 24
"""Steps of the first trial: the user's own run, continued."""
SHORT = 16
"""Steps of a trial of something else."""
LEARNING = 0.01
"""A gain of this share of the loss in `STEPS` steps is learning."""


class Exam:
    """A case with what was measured of it so far."""

    def __init__(self, case: Case, curve: tuple[Array, Array] | None = None) -> None:
        self.case, self.curve = case, curve
        self._known: dict[Any, Any] = {}

    def once(self, measure: Callable[[Exam], T]) -> T:
        """What a function measures; the same function is called only once."""
        if measure not in self._known:
            self._known[measure] = measure(self)
        found: T = self._known[measure]
        return found

    def batches(self, count: int) -> list[Any]:
        """So many batches; the user's are used again if they are fewer."""
        own = self.case.batches
        return [own[i % len(own)] for i in range(count)]

    @cached_property
    def base(self) -> Trace:
        """The user's run, continued for some steps."""
        return try_steps(self.case, self.batches(STEPS))

    @cached_property
    def still(self) -> Trace:
        """The losses of the weights as they are, on the same batches."""
        return try_steps(self.case, self.batches(STEPS), still=True)

    @cached_property
    def progress(self) -> Gain:
        """What the continued run gains on the weights as they are."""
        return gain(self.base, self.still)

    @property
    def learning(self) -> bool:
        """Whether the loss clearly falls in the continued run."""
        return self.base.finite and self.progress.clear(LEARNING)

    @property
    def level(self) -> float:
        """The mean loss now."""
        return sum(self.still.losses) / len(self.still.losses)

    def trial(self, change: Change, count: int = SHORT) -> Trace:
        """The continued run with something changed."""
        return try_steps(self.case, self.batches(count), change)

    def unlocks(
        self, change: Change, *, least: float = 2 * LEARNING, times: float = 4.0, at_once: bool = True, anew: bool = False
    ) -> Gain | None:
        """What a change gains, if with it the loss clearly falls, and far more than without it; else None.

        at_once   the change may lower the loss at once, as dropout does when it is off: losses are then compared with those of
                  the changed but untrained weights
        anew      from fresh weights, where those of now may be beyond repair
        """
        if anew:
            own, start = self.fresh_progress, both(fresh, change)
        else:
            own, start = gain(_cut(self.base, SHORT), _cut(self.still, SHORT)), change
        still = try_steps(self.case, self.batches(SHORT), start, still=True) if at_once or anew else self.still
        changed = gain(self.trial(start), still)
        return changed if changed.clear(least) and changed.share > times * max(own.share, 0.0) else None

    @cached_property
    def fresh_progress(self) -> Gain:
        """What the user's run gains in its first steps from fresh weights."""
        batches = self.batches(SHORT)
        return gain(try_steps(self.case, batches, fresh), try_steps(self.case, batches, fresh, still=True))

    @cached_property
    def _glass(self) -> Fork:
        """A fork to look into: its weights stay as they are."""
        fork = self.case.fork()
        fork.optimizer.step = lambda *args, **kwargs: None  # type: ignore[method-assign]
        return fork

    @cached_property
    def view(self) -> View:
        """The first batch, as the model is trained, with gradients."""
        view, self._head = self._look(self.case.batches[0], evaluate=False)
        return view

    def peek(
        self, replace: Callable[[Tensor], Tensor] | None = None, inputs: Callable[[Any], Any] | None = None, batch: Any = None
    ) -> View:
        """The first batch in evaluation mode, with another head output or other inputs of the model; without gradients."""
        self.view  # noqa: B018  # finds the head
        with torch.set_grad_enabled(self.case.step is not None):  # a step of the user's goes backward
            return self._look(self.case.batches[0] if batch is None else batch, replace, inputs)[0]

    def _look(
        self,
        batch: Any,
        replace: Callable[[Tensor], Tensor] | None = None,
        inputs: Callable[[Any], Any] | None = None,
        *,
        evaluate: bool = True,
    ) -> tuple[View, int]:
        fork = self._glass
        with seeded(), ExitStack() as stack:
            if evaluate:
                stack.callback(_evaluating(fork.model).remove)
            if inputs is not None:
                changed = fork.model.register_forward_pre_hook(lambda _, args, kwargs: inputs((args, kwargs)), with_kwargs=True)
                stack.callback(changed.remove)
            return look(
                fork.model, lambda: self._loss(fork, batch), head=getattr(self, "_head", None), replace=replace
            )  # fmt: skip

    def _loss(self, fork: Fork, batch: Any) -> Tensor:
        return self.case.train(fork, batch) if self.case.loss is None else self.case.loss_of(fork.model, batch)

    @cached_property
    def head_gradient(self) -> Tensor | None:
        """The gradient of the loss at the head's output, on the first batch."""
        kept: list[Tensor] = []

        def replace(output: Tensor) -> Tensor:
            kept.append(output.detach().requires_grad_())
            return kept[0]

        self.view  # noqa: B018
        with torch.enable_grad():
            view, _ = self._look(self.case.batches[0], replace)
            if not kept or view.loss is None:
                return None
            if view.loss.requires_grad:
                view.loss.backward()
        return kept[0].grad

    @cached_property
    def classes(self) -> int | None:
        """How many classes the loss tells apart; None if it is not that kind of loss."""
        call = next((one for one in self.view.losses if one.name in ("cross_entropy", "nll_loss")), None)
        if call is None:
            return None
        return int(call.given.shape[1] if call.given.dim() > 1 else call.given.shape[0])

    @cached_property
    def chance(self) -> float | None:
        """The loss of predicting every class alike: ln C."""
        return None if self.classes is None else math.log(self.classes)


def _cut(trace: Trace, count: int) -> Trace:
    return Trace(trace.losses[:count], trace.steps_taken, trace.parameters)


def _evaluating(model: nn.Module) -> Any:
    """Before each forward pass put a model into evaluation mode, whatever the user's step does."""
    return model.register_forward_pre_hook(lambda module, _: [one.train(False) for one in module.modules()] and None)
