"""A trial: some steps of the user's loop on a fork, watched.

Trials see the same batches and random numbers, so they compare in pairs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from eureka.forks.case import Case, Fork, seeded, stay
from eureka.forks.kept import kept_loop


@dataclass
class Watched:
    """One parameter over the steps of a trial; sums of squares are over elements and steps."""

    elements: int
    computed: float = 0.0
    """squares of the gradients as backward left them"""
    used: float = 0.0
    """squares of the gradients that the optimiser saw"""
    moved: float = 0.0
    """squares of the changes that the optimiser made"""
    weight: float = 0.0
    """squares of the weights"""
    pushed: int = 0
    """elements with a gradient at an optimiser's step, counted at every step"""
    rounded: int = 0
    """of those, the elements that did not change"""

    def add_gradient(self, gradient: Tensor, scale: float) -> None:
        self.computed += _squares(gradient) / scale**2


@dataclass(frozen=True)
class Trace:
    """What happened in a trial."""

    losses: list[float]
    """before each step"""
    steps_taken: int
    """how often the optimiser stepped"""
    parameters: dict[str, Watched]
    modes: dict[str, bool] = field(default_factory=dict)
    """by module, whether it was in training mode in its last forward pass"""
    clips: list[tuple[float, float]] = field(default_factory=list)
    """the norm before clipping and the limit, for each call of PyTorch's gradient clipping"""
    rates: list[float] = field(default_factory=list)
    """the greatest learning rate of any group at each step of the optimiser"""
    scheduled: list[float] = field(default_factory=list)
    """the same of the user's own optimiser, which a scheduler in their step sets, before the first step and after each"""
    seconds: float = 0.0

    def total(self, what: str) -> float:
        """The root of a sum of squares over all parameters."""
        return math.sqrt(sum(getattr(one, what) for one in self.parameters.values()))

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.losses))


Change = Callable[[Fork], Any]
"""Changes a fork before a trial; what it returns is ended after the trial if it is a context manager."""


def kept(case: Case) -> AbstractContextManager[None]:
    """Afterwards the user's schedule and counters are where they were, so that every experiment begins there."""
    return kept_loop(case.step or case.loss, case.optimizer, case.model)


def try_steps(case: Case, batches: Sequence[Any], change: Change | None = None, *, still: bool = False) -> Trace:
    """Train a fork on these batches.

    change   what is different from the user's run
    still    the optimiser's steps are left out: the losses of the weights as they are, on the same batches
    """
    with seeded(), kept(case), ExitStack() as stack:
        fork = case.fork()
        made = change(fork) if change is not None else None
        if isinstance(made, AbstractContextManager):
            stack.enter_context(made)
        watch = stack.enter_context(_watching(fork, case.step, still=still))
        start = time.perf_counter()
        losses, scheduled = [], [_rate(case.optimizer)]
        for batch in batches:
            losses.append(float(case.train(fork, batch)))
            scheduled.append(_rate(case.optimizer))
            if not math.isfinite(losses[-1]):
                break
        seconds = time.perf_counter() - start
        return Trace(losses, watch.steps, watch.parameters, watch.modes, watch.clips, watch.rates, scheduled, seconds)


@dataclass
class _Watch:
    parameters: dict[str, Watched]
    modes: dict[str, bool]
    clips: list[tuple[float, float]]
    rates: list[float]
    steps: int = 0


@contextmanager
def _watching(fork: Fork, step: Any, *, still: bool) -> Iterator[_Watch]:
    """Hooks on a fork's parameters, modules and optimiser, and on PyTorch's gradient clipping."""

    def adder(watched: Watched) -> Callable[[Tensor], None]:
        # A GradScaler multiplies gradients until it is told to divide them; a taped step knows by how much.
        return lambda gradient: watched.add_gradient(gradient, getattr(step, "gradient_scale", 1.0))

    named = dict(fork.model.named_parameters())
    watch = _Watch({name: Watched(parameter.numel()) for name, parameter in named.items()}, {}, [], [])
    with ExitStack() as stack:
        for name, parameter in named.items():
            if parameter.requires_grad and parameter.is_leaf:
                stack.callback(keep_gradient(parameter, adder(watch.parameters[name])).remove)
        for name, module in fork.model.named_modules():
            handle = module.register_forward_pre_hook(_keep_mode(watch.modes, name))
            stack.callback(handle.remove)
        stack.enter_context(_watched_steps(fork, named, watch, still))
        stack.enter_context(_watched_clipping(watch.clips))
        yield watch


def keep_gradient(parameter: nn.Parameter, keep: Callable[[Tensor], None]) -> RemovableHandle:
    """Hand over a parameter's gradient whenever backward has left one."""

    def hand_over(one: Tensor) -> None:
        if one.grad is not None:
            keep(one.grad.detach())

    handle: RemovableHandle = parameter.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]
    return handle


def _keep_mode(modes: dict[str, bool], name: str) -> Callable[[nn.Module, Any], None]:
    def keep(module: nn.Module, _: Any) -> None:
        modes[name] = module.training

    return keep


@contextmanager
def _watched_steps(fork: Fork, named: dict[str, nn.Parameter], watch: _Watch, still: bool) -> Iterator[None]:
    """In place of the optimiser's `step`: measure, step, measure."""
    original = fork.optimizer.step

    @torch.no_grad()
    def step(*args: Any, **kwargs: Any) -> Any:
        watch.steps += 1
        watch.rates.append(_rate(fork.optimizer))
        if still:
            return stay(*args, **kwargs)
        before = {name: parameter.detach().clone() for name, parameter in named.items()}
        with torch.enable_grad():
            result = original(*args, **kwargs)
        for name, parameter in named.items():
            _measure(watch.parameters[name], before[name], parameter)
        return result

    fork.optimizer.step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        fork.optimizer.step = original  # type: ignore[method-assign]


def _rate(optimizer: Optimizer) -> float:
    return max(float(group["lr"]) for group in optimizer.param_groups)


def _measure(seen: Watched, before: Tensor, parameter: nn.Parameter) -> None:
    change = parameter.detach() - before
    seen.moved += _squares(change)
    seen.weight += _squares(before)
    if parameter.grad is not None and not parameter.grad.is_sparse:
        seen.used += _squares(parameter.grad)
        pushed = parameter.grad != 0
        seen.pushed += int(pushed.sum())
        seen.rounded += int((pushed & (change == 0)).sum())


@contextmanager
def _watched_clipping(clips: list[tuple[float, float]]) -> Iterator[None]:
    """Listen to `torch.nn.utils.clip_grad_norm_`, which loops call by its module's name."""
    module = torch.nn.utils
    original = module.clip_grad_norm_

    def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Tensor:
        total = original(parameters, max_norm, *args, **kwargs)
        clips.append((float(total), float(max_norm)))
        return total

    module.clip_grad_norm_ = clip
    try:
        yield
    finally:
        module.clip_grad_norm_ = original


def _squares(tensor: Tensor) -> float:
    values = tensor.detach()
    return float((values.coalesce().values() if values.is_sparse else values).float().square().sum())


@dataclass(frozen=True)
class Gain:
    """How much lower the loss is than another one's on the same batches: the mean of paired differences, and its error."""

    mean: float
    error: float
    level: float
    """the mean loss that it is compared with"""

    @property
    def share(self) -> float:
        """The gain as a share of that loss."""
        return self.mean / abs(self.level) if self.level else 0.0

    def clear(self, least: float, errors: float = 3.0) -> bool:
        """Whether it is at least this share of the loss, and so many standard errors above none."""
        return self.share >= least and self.mean > errors * self.error


def gain(trace: Trace, than: Trace, last: float = 0.4) -> Gain:
    """How much lower the losses of a trial are than those of another, over the last part of the batches that both saw."""
    both = min(len(trace.losses), len(than.losses))
    first = both - max(1, round(last * both))
    pairs = [(a, b) for a, b in zip(trace.losses[first:both], than.losses[first:both], strict=True)]
    if not pairs or not all(math.isfinite(a) and math.isfinite(b) for a, b in pairs):
        return Gain(-math.inf, 0.0, than.losses[0] if than.losses else 0.0)
    differences = [b - a for a, b in pairs]
    mean = sum(differences) / len(pairs)
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / max(len(pairs) - 1, 1))
    return Gain(mean, spread / math.sqrt(len(pairs)), sum(b for _, b in pairs) / len(pairs))
