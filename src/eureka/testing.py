"""Does a part of your own keep the contract? `check_operator`, `check_task` and `check_model` say in one sentence what does not.

``eureka run``, ``compare`` and ``study`` check every part that is not ours before a run starts. Call them in your own tests too:

    >>> from eureka.attention.softmax import Softmax
    >>> check_operator(Softmax())
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from eureka.errors import ContractError, MissingExtraError

try:
    import torch
except ModuleNotFoundError:
    raise MissingExtraError("torch", "torch") from None

from torch import Generator, Tensor, nn

from eureka.attention.mask import Causal, Dense, KeyPadding, Mask, NoMask, visible_keys
from eureka.attention.operator import Operator
from eureka.tasks.task import IGNORED, Batch, Task

BATCH, QUERIES, KEYS = 2, 5, 7
SAMPLES = 8


def check_operator(operator: Operator, *, heads: int = 2, head_dim: int = 8) -> None:
    """Raise a `ContractError` unless this is attention as every model here expects it; the operator itself is left alone."""
    if not isinstance(operator, Operator):
        raise ContractError(f"an operator is a subclass of eureka.Operator, not a {type(operator).__name__}.")
    with torch.random.fork_rng(devices=[]):
        trial = _Trial(_copied(operator), type(operator).__name__)
        for mask in _masks():
            case = _case(mask, heads, head_dim)
            for check in (_check_result, _check_gradient, _check_hidden_keys, _check_samples, _check_weights):
                check(trial, case)
        _check_shared_keys(trial, _case(NoMask(), heads, head_dim))


@dataclass(frozen=True)
class _Case:
    """Inputs under one mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Mask
    visible: Tensor
    """(B, H, Q, K) boolean"""

    @property
    def name(self) -> str:
        return type(self.mask).__name__


@dataclass(frozen=True)
class _Trial:
    """A copy of the operator under test, and what it is called."""

    operator: Operator
    name: str

    def fail(self, case: _Case, what: str) -> ContractError:
        return ContractError(f"{self.name} {what} (mask: {case.name}).")

    def attend(self, case: _Case, **changed: Any) -> Tensor:
        """The operator's answer, with some of the inputs changed."""
        given = {"q": case.q, "k": case.k, "v": case.v, "mask": case.mask, **changed}
        return self._call(case, lambda: self.operator(*given.values(), 0.0))

    def weights(self, case: _Case) -> Tensor:
        return self._call(case, lambda: self.operator.weights(case.q, case.k, case.mask))

    def _call(self, case: _Case, call: Callable[[], Any]) -> Tensor:
        try:
            result = call()
        except Exception as error:
            raise self.fail(case, f"cannot be called: {type(error).__name__}: {error}") from error
        if not isinstance(result, Tensor):
            raise self.fail(case, f"gives a {type(result).__name__}, not a tensor")
        return result


def _copied(operator: Operator) -> Operator:
    try:
        copied = copy.deepcopy(operator)
        copied.advance(0)
    except Exception as error:
        name = type(operator).__name__
        raise ContractError(f"{name} cannot be copied, and every layer gets a copy: {type(error).__name__}: {error}.") from error
    return copied


def _masks() -> Iterator[Mask]:
    """One mask of each kind; every query sees two keys at least."""
    yield NoMask()
    yield Causal(KEYS - QUERIES)
    padding = torch.ones(BATCH, KEYS, dtype=torch.bool)
    padding[0, -2:] = padding[1, 0] = False
    yield KeyPadding(padding)
    dense = torch.rand(BATCH, 1, QUERIES, KEYS, generator=Generator().manual_seed(1)) < 0.6
    dense[..., 2:4] = True
    yield Dense(dense)


def _case(mask: Mask, heads: int, head_dim: int) -> _Case:
    g = Generator().manual_seed(0)
    q, k, v = (torch.randn(BATCH, heads, n, head_dim, generator=g) for n in (QUERIES, KEYS, KEYS))
    shown = visible_keys(mask, QUERIES, KEYS)
    visible = torch.ones((), dtype=torch.bool) if shown is None else shown
    return _Case(q, k, v, mask, visible.expand(BATCH, heads, QUERIES, KEYS))


def _close(first: Tensor, second: Tensor) -> bool:
    return torch.allclose(first, second, atol=1e-5, rtol=1e-4)


def _check_result(trial: _Trial, case: _Case) -> None:
    before = [x.clone() for x in (case.q, case.k, case.v)]
    out = trial.attend(case)
    if out.shape != case.q.shape:
        raise trial.fail(case, f"gives a result of shape {tuple(out.shape)}, not (B, H, Q, D) = {tuple(case.q.shape)}")
    if out.dtype != case.v.dtype:
        raise trial.fail(case, f"turns {case.v.dtype} into {out.dtype}")
    if not out.isfinite().all():
        raise trial.fail(case, "gives a result that is not finite")
    if not all(torch.equal(old, new) for old, new in zip(before, (case.q, case.k, case.v), strict=True)):
        raise trial.fail(case, "changes its inputs in place")
    if not torch.equal(trial.attend(case), out):
        raise trial.fail(case, "gives another result when it is called again with the same inputs")
    if not torch.equal(copy.deepcopy(trial.operator)(case.q, case.k, case.v, case.mask, 0.0), out):
        raise trial.fail(case, "gives another result after it was copied")


def _check_gradient(trial: _Trial, case: _Case) -> None:
    inputs = {name: getattr(case, name).clone().requires_grad_() for name in ("q", "k", "v")}
    out = trial.attend(case, **inputs)
    if not out.requires_grad:
        raise trial.fail(case, "cuts the gradient: nothing reaches q, k or v")
    gradients = torch.autograd.grad(out.square().sum(), list(inputs.values()), allow_unused=True)
    for name, gradient in zip(inputs, gradients, strict=True):
        if gradient is None or not gradient.any():
            raise trial.fail(case, f"lets no gradient reach {name}")
        if not gradient.isfinite().all():
            raise trial.fail(case, f"gives {name} a gradient that is not finite")


def _check_hidden_keys(trial: _Trial, case: _Case) -> None:
    """A value that a query does not see must not matter to it, nor a key; where rows depend on each other, one that none sees."""
    out, g = trial.attend(case), Generator().manual_seed(2)
    for key in range(KEYS):
        blind = ~case.visible[..., key]  # (B, H, Q)
        nobody = blind.all(dim=-1, keepdim=True).expand_as(blind)
        for name, rows in (("v", blind), ("k", nobody if trial.operator.rows_depend_on_each_other else blind)):
            changed = getattr(case, name).clone()
            changed[:, :, key] += 3 * torch.randn(changed[:, :, key].shape, generator=g)
            after = trial.attend(case, **{name: changed})
            if not _close(after[rows], out[rows]):
                what = "value" if name == "v" else "key"
                raise trial.fail(case, f"leaks: the {what} of a hidden token changes the result of a query that must not see it")


def _check_samples(trial: _Trial, case: _Case) -> None:
    first: Mask = case.mask
    if isinstance(first, KeyPadding | Dense):
        first = type(first)(first.visible[:1])
    alone = trial.attend(case, q=case.q[:1], k=case.k[:1], v=case.v[:1], mask=first)
    if alone.shape != case.q[:1].shape or not _close(alone, trial.attend(case)[:1]):
        raise trial.fail(case, "mixes samples: the result of one depends on the others in its batch")


def _check_weights(trial: _Trial, case: _Case) -> None:
    weights = trial.weights(case)
    shape = (*case.q.shape[:3], KEYS)
    if weights.shape != shape:
        raise trial.fail(case, f"has weights of shape {tuple(weights.shape)}, not (B, H, Q, K) = {shape}")
    if not torch.allclose(weights.to(case.v.dtype) @ case.v, trial.attend(case), atol=1e-4, rtol=1e-3):
        raise trial.fail(case, "has weights that do not give its result: weights(q, k, mask) @ v is something else")


def _check_shared_keys(trial: _Trial, case: _Case) -> None:
    k, v = case.k[:, :1], case.v[:, :1]
    whole = trial.attend(case, k=k.expand_as(case.k).contiguous(), v=v.expand_as(case.v).contiguous())
    shared = trial.attend(case, k=k, v=v)
    if shared.shape != whole.shape or not _close(shared, whole):
        raise trial.fail(case, "does not share keys: k and v of one head must serve all heads of q")


def check_task(task: Task) -> None:
    """Raise a `ContractError` unless samples, levels, loss and accuracy are as the training loop expects them."""
    if not isinstance(task, Task):
        raise ContractError(f"a task is a subclass of eureka.tasks.task.Task, not a {type(task).__name__}.")
    name = type(task).__name__
    for attribute in ("input_shape", "classes"):
        if getattr(task, attribute, None) is None:
            raise ContractError(f"{name} does not say its {attribute}.")
    with torch.random.fork_rng(devices=[]):
        for split in ("train", "validation"):
            batch = _sampled(task, 0, split)
            _check_batch(task, batch, f"{name} ({split})")
            _check_drawing(task, batch, split, f"{name} ({split})")
            _check_scores(task, batch, f"{name} ({split})")
    for smoothing in (0.0, 0.1):
        _check_levels(task, smoothing, name)


def _sampled(task: Task, seed: int, split: Any) -> Batch:
    try:
        batch = task.sample(SAMPLES, Generator().manual_seed(seed), split)
    except Exception as error:
        raise ContractError(f"{type(task).__name__} cannot be sampled: {type(error).__name__}: {error}.") from error
    if not isinstance(batch, Batch):
        raise ContractError(f"{type(task).__name__} gives a {type(batch).__name__}, not a Batch.")
    return batch


def _check_batch(task: Task, batch: Batch, what: str) -> None:
    shape, dtype = (SAMPLES, *task.input_shape), torch.float32 if task.vocabulary is None else torch.int64
    if tuple(batch.inputs.shape) != shape:
        raise ContractError(f"{what} gives inputs of shape {tuple(batch.inputs.shape)}, not (n, *input_shape) = {shape}.")
    if batch.inputs.dtype != dtype:
        raise ContractError(f"{what} gives inputs of {batch.inputs.dtype}, not {dtype}.")
    if task.vocabulary is not None and not bool(((batch.inputs >= 0) & (batch.inputs < task.vocabulary)).all()):
        raise ContractError(f"{what} shows tokens outside its vocabulary of {task.vocabulary}.")
    if not batch.inputs.isfinite().all():
        raise ContractError(f"{what} gives inputs that are not finite.")
    if len(batch.labels) != SAMPLES:
        raise ContractError(f"{what} gives {len(batch.labels)} labels for {SAMPLES} samples.")
    if not batch.labels.is_floating_point():
        _check_classes(task, batch.labels, what)
    for step, answers in batch.steps.items():
        if len(answers) != SAMPLES:
            raise ContractError(f"{what} gives {len(answers)} answers of step {step!r} for {SAMPLES} samples.")


def _check_classes(task: Task, labels: Tensor, what: str) -> None:
    if labels.dtype != torch.int64:
        raise ContractError(f"{what} gives labels of {labels.dtype}, not {torch.int64}.")
    asked = labels[labels != IGNORED] if task.per_token else labels
    if not bool(((asked >= 0) & (asked < task.classes)).all()):
        raise ContractError(f"{what} gives labels outside its {task.classes} classes.")


def _check_drawing(task: Task, batch: Batch, split: Any, what: str) -> None:
    torch.manual_seed(1)  # the global generator is in another state now
    again, other = _sampled(task, 0, split), _sampled(task, 1, split)
    pairs = [(batch.inputs, again.inputs), (batch.labels, again.labels), *((batch.steps[s], again.steps[s]) for s in batch.steps)]
    if not all(torch.equal(first, second) for first, second in pairs):
        raise ContractError(f"{what} gives other samples for the same state of the generator; draw from the generator alone.")
    if torch.equal(batch.inputs, other.inputs):
        raise ContractError(f"{what} gives the same samples whatever the state of the generator.")


def _check_scores(task: Task, batch: Batch, what: str) -> None:
    shape = (SAMPLES, task.input_shape[0], task.classes) if task.per_token else (SAMPLES, task.classes)
    outputs = torch.zeros(shape, requires_grad=True)
    try:
        loss, accuracy = task.loss(outputs, batch), task.accuracy(outputs, batch)
    except Exception as error:
        raise ContractError(f"{what} cannot score outputs of shape {shape}: {type(error).__name__}: {error}.") from error
    if loss.dim() or not loss.isfinite() or not loss.requires_grad:
        raise ContractError(f"{what} gives a loss that is not one finite number with a gradient.")
    if accuracy.dim() or not accuracy.isfinite():
        raise ContractError(f"{what} gives an accuracy that is not one finite number.")
    if not batch.labels.is_floating_point():
        right = nn.functional.one_hot(batch.labels.clamp_min(0), task.classes).float() * 30
        if float(task.accuracy(right, batch)) < 1 or float(task.loss(right, batch)) >= float(loss.detach()):
            raise ContractError(f"{what} does not give its own labels the accuracy 1 and the lower loss.")


def _check_levels(task: Task, smoothing: float, what: str) -> None:
    levels = task.levels(smoothing)
    if len(levels) < 2:
        raise ContractError(f"{what} has {len(levels)} levels; it takes two at least, the shortcut and the floor.")
    if not all(math.isfinite(number) for level in levels for number in (level.loss, level.accuracy)):
        raise ContractError(f"{what} has a level that is not finite.")
    for worse, better in itertools.pairwise(levels):
        if better.loss >= worse.loss or better.accuracy < worse.accuracy:
            raise ContractError(f"{what} has levels out of order: {better.knows!r} is not better than {worse.knows!r}.")


def check_model(model: nn.Module, task: Task) -> None:
    """Raise a `ContractError` unless the model answers the samples of a task in the shape that its loss expects."""
    name, batch = type(model).__name__, _sampled(task, 0, "train")
    shape = (SAMPLES, task.input_shape[0], task.classes) if task.per_token else (SAMPLES, task.classes)
    with torch.random.fork_rng(devices=[]):
        try:
            outputs = copy.deepcopy(model)(batch.inputs)
        except Exception as error:
            raise ContractError(f"{name} cannot answer {type(task).__name__}: {type(error).__name__}: {error}.") from error
    if not isinstance(outputs, Tensor) or tuple(outputs.shape) != shape:
        found = tuple(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
        raise ContractError(f"{name} gives outputs of shape {found}, not {shape}.")
    if not outputs.requires_grad:
        raise ContractError(f"{name} cuts the gradient: nothing in it can learn.")
