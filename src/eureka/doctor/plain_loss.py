"""What a step returns as its loss, beside the plain loss that it computes: the same, a multiple of it, or something else."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eureka.doctor.frequencies import CLASSIFIERS, LabelCounter

NEAR = 0.02
"""A loss that differs from the plain one by less than this share of it, or of chance, is the plain one."""
EXACTLY = 3e-5
"""A multiple of the plain loss is one up to this share."""
VARIED = 10 * EXACTLY
"""Plain losses that differ by less than this share cannot tell a multiple from a sum with something constant."""


@dataclass(frozen=True)
class PlainCall:
    """A call of a loss: its mean over what counts."""

    value: float
    classes: int
    """0 for a squared error"""
    weight: Tensor | None = None
    smoothing: float = 0.0
    labels: Tensor | None = None
    """how often each class was asked for, where there is one label a row of logits"""


class PlainLosses(LabelCounter):
    """Counts what is asked for, and keeps the plain losses of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[list[PlainCall]] = []

    def announced(self, batches: Iterable[Any]) -> list[Any]:
        """The same batches; each begins a step when it is taken."""
        return _Announced(batches, lambda: self.steps.append([]))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        name = getattr(func, "__name__", "")
        if self.steps and name in (*CLASSIFIERS, "mse_loss") and isinstance(result, Tensor):
            self._keep(name, result.detach(), *args, **(kwargs or {}))
        return result

    def _keep(self, name: str, result: Tensor, given: Any = None, target: Any = None, *rest: Any, **named: Any) -> None:
        given, target = named.get("input", given), named.get("target", target)
        if not isinstance(given, Tensor) or not isinstance(target, Tensor):
            return
        mean = named.get("reduction", "mean") == "mean"
        if name == "mse_loss":
            count = float(max(given.numel(), target.numel()))
            self.steps[-1].append(PlainCall(float(result.float().sum()) / (1.0 if mean else count), 0))
        elif not target.is_floating_point() and given.dim() > 1:
            weight = named.get("weight", rest[0] if rest else None)
            counted = target.detach()[target != int(named.get("ignore_index", -100))]
            count = float(len(counted)) if weight is None else float(weight.detach()[counted].sum())
            value = float(result.float().sum()) / (1.0 if mean else count or math.nan)
            classes, kept = int(given.shape[1]), None if weight is None else weight.detach().double().cpu()
            labels = torch.bincount(counted, minlength=classes).cpu() if given.dim() == 2 else None
            self.steps[-1].append(PlainCall(value, classes, kept, float(named.get("label_smoothing", 0.0)), labels))

    @property
    def calls(self) -> list[list[PlainCall]]:
        """Of each step those that chance is known of: of cross-entropy, or else of a squared error."""
        classifying = self.guessing is not None
        return [[one for one in step if bool(one.classes) == classifying] for step in self.steps]

    @property
    def what(self) -> str:
        return "squared error" if self.guessing is None else "cross-entropy"

    @property
    def chance(self) -> float | None:
        """The plain loss of the best answer that does not look at the inputs, with class weights and smoothing as they are."""
        if self.guessing is None:
            return self.variance or None
        call = next((one for step in self.calls for one in step), None)
        if call is None or self.counts is None or (call.weight is None and not call.smoothing):
            return self.guessing or None
        return _weighted(self.counts.double(), call) or None

    def multiple(self, returned: Sequence[float]) -> float | None:
        """How many times the plain loss the returned one is, on every batch; None if it is something else."""
        chance, calls = self.chance, self.calls
        if (
            chance is None
            or len(calls) < len(returned)
            or not all(calls)
            or len({one.classes for step in calls for one in step}) > 1
        ):
            return None
        means = [sum(one.value for one in step) / len(step) for step in calls]
        found = _multiple(_finite_pairs(returned, means), chance)
        if found is not None:
            return found
        return _multiple(_finite_pairs(returned, [step[-1].value for step in calls]), chance)  # the last micro-batch alone


class _Announced(list[Any]):
    def __init__(self, batches: Iterable[Any], announce: Callable[[], None]) -> None:
        super().__init__(batches)
        self._announce = announce

    def __iter__(self) -> Iterator[Any]:
        for batch in super().__iter__():
            self._announce()
            yield batch


def _finite_pairs(returned: Sequence[float], plain: Sequence[float]) -> list[tuple[float, float]]:
    return [(a, b) for a, b in zip(returned, plain, strict=False) if math.isfinite(a) and math.isfinite(b)]


def _multiple(pairs: Sequence[tuple[float, float]], chance: float) -> float | None:
    """The factor between two lists of losses; 1 if they are alike, None if there is none."""
    if not pairs:
        return None
    if all(abs(a - b) <= NEAR * max(abs(b), chance) for a, b in pairs):
        return 1.0
    squares = sum(b * b for _, b in pairs)
    if not squares:
        return None
    factor = sum(a * b for a, b in pairs) / squares
    if max(abs(a - factor * b) for a, b in pairs) > EXACTLY * max(abs(a) for a, _ in pairs):
        return None
    plain = [b for _, b in pairs]
    varied = max(plain) - min(plain) > VARIED * max(map(abs, plain))
    return factor if varied or abs(factor + 1.0) < EXACTLY else None  # minus the loss is no coincidence


def _weighted(counts: Tensor, call: PlainCall) -> float:
    """The loss of the best constant answer where classes have weights, or labels are smoothed."""
    weight = torch.ones_like(counts) if call.weight is None else call.weight
    asked = (1.0 - call.smoothing) * counts * weight + call.smoothing / len(counts) * counts.sum() * weight
    total = float((counts * weight).sum())
    asked = asked[asked > 0]
    return float(-(asked * (asked / asked.sum()).log()).sum()) / total if total else 0.0
