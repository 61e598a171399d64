"""Measurements that several checks need, each made once and only when it is asked for."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import SGD

from eureka.curves.grid import Array
from eureka.doctor.changes import both, fresh, frozen_kept
from eureka.doctor.plain_loss import PlainLosses
from eureka.doctor.view import View, look
from eureka.forks.case import Case, Fork, seeded
from eureka.forks.inputs import Inputs
from eureka.forks.trial import Change, Gain, Trace, gain, keep_gradient, kept, try_steps

T = TypeVar("T")

STEPS = 24
"""Steps of the first trial: the user's own run, continued."""
SHORT = 16
"""Steps of a trial of something else."""
LONG = 40
"""Steps of a trial of something that is suspected already."""
LEARNING = 0.01
"""A gain of this share of the loss in `STEPS` steps is learning."""
TINY = 1e-4
"""Steps that change the weights by less than this share of their size are tiny: a thousandth is usual."""
WELL = 0.05
"""A gain of this share is more than what fitting the frequencies of the labels brings."""
LEARNED = 0.3
"""A loss below this share of chance shows that most is learned."""
GUESSING = 0.97
"""A loss above this share of chance is no better than guessing."""
FEW = 5
"""Batches that show what is usual."""


class Exam:
    """A case with what was measured of it so far."""

    def __init__(self, case: Case, curve: tuple[Array, Array] | None = None) -> None:
        self.case, self.curve = case, curve
        self._known: dict[Any, Any] = {}
        self._labels = PlainLosses()

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
        with self._labels:
            return try_steps(self.case, self._labels.announced(self.batches(STEPS)), still=True)

    @cached_property
    def still_longer(self) -> Trace:
        """The same on as many batches as a long trial sees; the first ones come again."""
        losses, count = self.still.losses, min(len(self.case.batches), len(self.still.losses))
        return replace(self.still, losses=[losses[i % count] for i in range(LONG)])

    @cached_property
    def progress(self) -> Gain:
        """What the continued run gains on the weights as they are."""
        return gain(self.base, self.still)

    @property
    def learning(self) -> bool:
        """Whether the loss clearly falls in the continued run."""
        return self.base.finite and self.progress.clear(LEARNING)

    @cached_property
    def anew(self) -> Exam:
        """An exam of the same case with fresh weights: what it shows is not what training has done."""
        return self._of(fresh)

    @cached_property
    def untrained(self) -> Exam:
        """The same, but frozen weights stay: they are what training begins with."""
        return self._of(frozen_kept(fresh))

    def _of(self, change: Change) -> Exam:
        fork = self.case.fork()
        with seeded():
            change(fork)
        return Exam(replace(self.case, model=fork.model, optimizer=fork.optimizer))

    @property
    def well(self) -> bool:
        """Whether it learns as it should: the loss falls below what guessing gives, and not at a crawl; or it is low already."""
        if self.chance is None:
            return self.learning
        if self.base.finite and self.end < LEARNED * self.chance:
            return True
        return self.learning and self.end < GUESSING * self.chance and self.progress.share > WELL

    @property
    def level(self) -> float:
        """The mean loss now."""
        return mean(self.still.losses)

    @property
    def end(self) -> float:
        """The mean loss at the end of the continued run."""
        return mean(self.base.losses[-8:])

    @property
    def taken(self) -> float:
        """Steps that the run has made: as the optimiser counts them, or the log; 0 if neither tells (`counted`)."""
        return self._taken or 0.0

    @property
    def counted(self) -> bool:
        """Whether it is known how many steps the run has made."""
        return self._taken is not None

    @property
    def _taken(self) -> float | None:
        optimizer = self.case.optimizer
        counts = [state[name] for state in optimizer.state.values() for name in ("step", "n_iter") if name in state]
        if counts:
            return max(float(one) for one in counts)
        if self.curve is not None:
            return float(self.curve[0][-1])
        plain = isinstance(optimizer, SGD) and not any(group["momentum"] for group in optimizer.param_groups)  # remembers nothing
        return None if plain or optimizer.state else 0.0

    @property
    def step_size(self) -> float:
        """How far a step moves the weights, by their size."""
        asked = [one for one in self.base.parameters.values() if one.used > 0]  # frozen ones are not to move
        weight = math.sqrt(sum(one.weight for one in asked))
        return self.base.total("moved") / weight if weight else 0.0

    @property
    def finite(self) -> bool:
        """Whether the loss is a number now."""
        return self.still.finite

    @property
    def guessing(self) -> bool:
        """Whether the loss is no better than chance."""
        return self.chance is not None and not self.level < GUESSING * self.chance

    def trial(self, change: Change, count: int = SHORT) -> Trace:
        """The continued run with something changed."""
        return try_steps(self.case, self.batches(count), change)

    def unlocks(
        self,
        change: Change,
        *,
        least: float = 2 * LEARNING,
        times: float = 4.0,
        at_once: bool = True,
        anew: bool = False,
        count: int = SHORT,
    ) -> Gain | None:
        """What a change gains, if with it the loss clearly falls, and far more than without it; else None.

        at_once   the change may lower the loss at once, as dropout does when it is off: losses are then compared with those of
                  the changed but untrained weights
        anew      from fresh weights, where those of now may be beyond repair
        count     steps of the trial
        """
        if anew:
            own, start = self.fresh_progress(count), both(fresh, change)
        else:
            own, start = gain(_cut(self.base, SHORT), _cut(self.still, SHORT)), change
        if at_once:
            still = try_steps(self.case, self.batches(count), start, still=True)
        elif anew:
            still = self.fresh_still(count)
        else:
            still = self.still if count <= STEPS else self.still_longer
        changed = gain(self.trial(start, count), still)
        return changed if changed.clear(least) and changed.share > times * max(own.share, 0.0) else None

    def fresh_still(self, count: int) -> Trace:
        """The losses of fresh weights as they are."""
        if ("fresh", count) not in self._known:
            self._known["fresh", count] = try_steps(self.case, self.batches(count), fresh, still=True)
        found: Trace = self._known["fresh", count]
        return found

    def fresh_progress(self, count: int) -> Gain:
        """What the user's run gains in its first steps from fresh weights."""
        return gain(try_steps(self.case, self.batches(count), fresh), self.fresh_still(count))

    @cached_property
    def glass(self) -> Fork:
        """A fork to look into: its weights stay as they are."""
        fork = self.case.fork()
        fork.hold()
        return fork

    @cached_property
    def view(self) -> View:
        """The first batch, as the model is trained, with gradients."""
        view, self._head = self._look(self.case.batches[0], evaluate=False)
        return view

    def view_of(self, fork: Fork) -> View:
        """The first batch, as a fork is trained."""
        fork.hold()
        with seeded(), kept(self.case):
            return look(fork.model, lambda: self._loss(fork, self.case.batches[0]))[0]

    def peek(
        self,
        replace: Callable[[Tensor], Tensor] | None = None,
        inputs: Callable[[Any], Any] | None = None,
        batch: Any = None,
        *,
        gradients: bool = False,
        whole: bool = True,
    ) -> View:
        """The first batch in evaluation mode, with another head output or other inputs of the model.

        gradients   keep the graph
        whole       False if the loss may fail, as it does on rows that were cut: what was seen until then is returned
        """
        self.view  # noqa: B018  # finds the head
        with torch.set_grad_enabled(gradients or self.case.step is not None):  # a step of the user's goes backward
            view, _ = self._look(self.case.batches[0] if batch is None else batch, replace, inputs, whole=whole)
        if view.head is not None and not gradients:
            view.head = view.head.detach()
        return view

    def _look(
        self,
        batch: Any,
        replace: Callable[[Tensor], Tensor] | None = None,
        inputs: Callable[[Any], Any] | None = None,
        *,
        evaluate: bool = True,
        whole: bool = True,
    ) -> tuple[View, int]:
        fork = self.glass
        with seeded(), kept(self.case), ExitStack() as stack:
            if evaluate:
                stack.callback(_evaluating(fork.model).remove)
            if inputs is not None:
                changed = fork.model.register_forward_pre_hook(lambda _, args, kwargs: inputs((args, kwargs)), with_kwargs=True)
                stack.callback(changed.remove)
            head = getattr(self, "_head", None)
            return look(fork.model, lambda: self._loss(fork, batch), head=head, replace=replace, whole=whole)

    def _loss(self, fork: Fork, batch: Any) -> Tensor:
        return self.case.train(fork, batch) if self.case.loss is None else self.case.loss_of(fork.model, batch)

    @cached_property
    def given(self) -> Any:
        """What the model is called with on the first batch: a tensor, or all arguments by name; None if that is not known."""
        inputs = Inputs(self.case.model)
        inputs.see(self.case.model, self.view.inputs, dict(self.view.keywords))
        return inputs.as_one()

    @property
    def target_scale(self) -> tuple[float, float] | None:
        """The mean and the spread of the targets of a squared error."""
        self.still  # noqa: B018  # sums them up
        counted = self._labels
        return None if not counted.variance else (counted.total / counted.numbers, counted.variance**0.5)

    @property
    def labels_by_batch(self) -> list[Tensor]:
        """How often each class is asked for in each of the first batches; of several cross-entropies, the first."""
        self.still  # noqa: B018  # counts them
        steps = self._labels.calls[: len(self.case.batches)]
        return [step[0].labels for step in steps if step and step[0].labels is not None]

    @cached_property
    def gradient_norm(self) -> float:
        """The usual norm of the gradient of a step, as backward leaves it."""
        norms = [
            math.sqrt(sum(float(one.square().sum()) for one in self.gradients(batch).values()))
            for batch in self.case.batches[:FEW]
        ]
        return statistics.median(norms)

    @cached_property
    def head_gradient(self) -> Tensor | None:
        """The gradient of the loss at the head's output, on the first batch."""
        given: list[Tensor] = []

        def replace(output: Tensor) -> Tensor:
            given.append(output.detach().requires_grad_())
            return given[0]

        self.view  # noqa: B018
        with torch.enable_grad():
            view, _ = self._look(self.case.batches[0], replace)
            if not given or view.loss is None:
                return None
            if view.loss.requires_grad:
                view.loss.backward()  # type: ignore[no-untyped-call]
        return given[0].grad

    def gradients(self, batch: Any, seed: int = 0) -> dict[str, Tensor]:
        """The gradients of all parameters on a batch, a vector each, before anything is done to them."""
        fork = self.case.fork()
        found: dict[str, Tensor] = {}
        for name, parameter in fork.model.named_parameters():
            if parameter.requires_grad:
                keep_gradient(parameter, lambda gradient, name=name: found.__setitem__(name, gradient.float().flatten().clone()))  # type: ignore[misc]
        fork.hold()
        with seeded(seed), kept(self.case):
            self.case.train(fork, batch)
        return found

    def observe(self, keep: Callable[[str, nn.Module, Any, Any], None], batch: Any = None, *, whole: bool = True) -> View:
        """Compute the loss of a batch as in training; `keep` gets each module's name, itself, its inputs and output.

        batch   the first one, if none is given
        whole   False if the step may fail
        """
        with ExitStack() as stack:
            for name, module in self.glass.model.named_modules():
                handle = module.register_forward_hook(lambda module, args, output, name=name: keep(name, module, args, output))
                stack.callback(handle.remove)
            return self._look(self.case.batches[0] if batch is None else batch, evaluate=False, whole=whole)[0]

    @cached_property
    def classes(self) -> int | None:
        """How many classes the loss tells apart; None if it is not that kind of loss."""
        call = next((one for one in self.view.losses if one.name in ("cross_entropy", "nll_loss")), None)
        if call is None:
            return None
        return int(call.given.shape[1] if call.given.dim() > 1 else call.given.shape[0])

    @cached_property
    def plain_chance(self) -> float | None:
        """The cross-entropy, or squared error, of the best answer that does not look at the inputs."""
        self.still  # noqa: B018  # counts the labels
        return self._labels.chance

    @cached_property
    def multiple(self) -> float | None:
        """How many times that plain loss is what the user's loop returns as the loss; None if it is something else."""
        return self._labels.multiple(self.still.losses)

    @property
    def plain_name(self) -> str:
        self.still  # noqa: B018
        return self._labels.what

    @cached_property
    def chance(self) -> float | None:
        """The loss of the best answer that does not look at the inputs, as the user's loop would return it.

        None where it is not known, or where the returned loss is no multiple of the plain one: then its level says nothing.
        """
        if self.plain_chance is None or self.multiple is None or self.multiple <= 0:
            return None
        return self.multiple * self.plain_chance


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _cut(trace: Trace, count: int) -> Trace:
    return Trace(trace.losses[:count], trace.steps_taken, trace.parameters)


def _evaluating(model: nn.Module) -> Any:
    """Before each forward pass put a model into evaluation mode, whatever the user's step does."""
    return model.register_forward_pre_hook(lambda module, _: [one.train(False) for one in module.modules()] and None)
