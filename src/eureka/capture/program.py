"""Taped steps as programs, and how they run again: exactly, as a proof, or on any copy of the model, as an experiment."""

from __future__ import annotations

import contextlib
import copy
import random
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from eureka.capture.lines import Line
from eureka.capture.subject import bare
from eureka.forks.generators import restorer

SYNC = "require_backward_grad_sync"
"""The attribute of DistributedDataParallel that no_sync() switches."""
PROGRAM = "program"
"""The key of a taped batch under which its program is."""


# What a step consists of


@dataclass(frozen=True)
class Leaf:
    """A parameter, by its name below the subject's root."""

    name: str


@dataclass(frozen=True, eq=False)
class Datum:
    """A tensor without gradient that entered a call."""

    micro: int
    """how many times backward had run in the step when it was first used: the micro-batch that it belongs to"""
    name: str
    requires_grad: bool = False


@dataclass(frozen=True)
class ModuleRef:
    """A trained module that is passed as an argument."""

    module: nn.Module


@dataclass(frozen=True)
class Attribute:
    """A tensor that a recorded call of a module has left in an attribute of it or of a part."""

    call: Call
    path: str
    name: str


@dataclass(frozen=True)
class Unknown:
    """A tensor with a gradient whose origin was not seen; a step that needs it cannot be replayed."""

    reason: str


@dataclass(eq=False)
class Call:
    """A call of a module or of a torch function."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    environment: Environment
    randomness: Randomness
    graded: bool
    writes: bool
    """whether it changed buffers of a trained module"""
    outputs: int
    line: Line | None
    written: int | None = None
    """the storage that a function working in place has written to"""
    in_place: bool = False
    """whether the result is the first argument"""
    storages: frozenset[int] = frozenset()
    synced: bool | None = None
    """of a model that is distributed: whether this pass leads to gradients that the ranks share"""

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return type(self.target).__name__ if isinstance(self.target, nn.Module) else getattr(self.target, "__name__", "?")


@dataclass(frozen=True)
class Result:
    """A tensor that a call has returned."""

    call: Call
    index: int


REFERENCES = Leaf | Datum | Result | Attribute | ModuleRef | Unknown


@dataclass(eq=False)
class Backward:
    """A call of backward."""

    root: Any
    gradient: Datum | None
    value: Tensor
    """the loss, before a GradScaler multiplied it"""
    scale: float | None
    retain: bool
    line: Line | None
    reaches: frozenset[int] = frozenset()
    """the ids of the parameters whose gradient it changed"""


@dataclass(eq=False)
class ResetGradients:
    names: tuple[str, ...]
    to_none: bool


@dataclass(eq=False)
class Clip:
    function: str
    names: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False)
class Unscale:
    optimizer: int | None
    scale: float


@dataclass(eq=False)
class Update:
    """A step of an optimiser."""

    optimizer: int | None
    settings: list[dict[str, Any]]
    closure: list[Closure] | None = None


@dataclass(eq=False)
class Closure:
    """What the closure of an optimiser did in one call."""

    actions: list[Any] = field(default_factory=list)


@dataclass(eq=False)
class Overwrite:
    """Weights that the script wrote besides its optimisers."""

    values: dict[str, Tensor]


@dataclass(eq=False)
class OverwriteGradients:
    """Gradients that the script has changed by itself."""

    values: dict[str, Tensor]


class TapedStep:
    """One step as it was recorded."""

    def __init__(self) -> None:
        self.actions: list[Any] = []
        self.data: dict[Datum, Tensor] = {}
        self.micro = 0
        self.by_hand = ""
        """what the script changes besides what is recorded, if gradients are among it"""
        self.overwritten = False

    def unused_name(self, name: str) -> str:
        used = {datum.name for datum in self.data if datum.micro == self.micro}
        free, place = name, 2
        while free in used or free == PROGRAM:
            free, place = f"{name}_{place}", place + 1
        return free

    def add(self, datum: Datum, value: Tensor) -> None:
        """Keep a copy of a tensor, with its strides: kernels may give other bits for another layout."""
        self.data[datum] = copied_tensor(value)

    def all_actions(self) -> Iterator[Any]:
        """Return all actions, those of closures included."""
        for action in self.actions:
            yield action
            for one in getattr(action, "closure", None) or ():
                yield from one.actions

    def close(self, writes: Callable[[nn.Module], bool]) -> str:
        """Drop calls that no loss asks for; return why the step cannot be replayed, or nothing."""
        self.actions = needed(self.actions, writes)
        for action in self.all_actions():
            for one in _references(action):
                if isinstance(one, Unknown):
                    return one.reason
        return ""

    @property
    def backwards(self) -> list[Backward]:
        return [action for action in self.all_actions() if isinstance(action, Backward)]

    @property
    def form(self) -> tuple[str, ...]:
        """What the step does, without its numbers; steps of one form share it."""
        return tuple(
            action.name if isinstance(action, Call) else type(action).__name__
            for action in self.all_actions()
            if not isinstance(action, Overwrite | OverwriteGradients)
        )

    @property
    def bytes(self) -> int:
        return sum(one.numel() * one.element_size() for one in self.data.values() if one.layout == torch.strided)


def copied_tensor(value: Tensor) -> Tensor:
    """Return a copy without gradient that has the strides of the original."""
    value = value.detach()
    if value.layout != torch.strided or value.is_contiguous() or value.is_quantized:
        return value.clone()
    if 0 in value.stride():  # expanded: several elements share a place
        narrow = value
        for dim, (size, stride) in enumerate(zip(value.shape, value.stride(), strict=True)):
            narrow = narrow.narrow(dim, 0, 1) if stride == 0 and size > 1 else narrow
        return narrow.clone().expand(value.shape)
    try:
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).copy_(value)
    except RuntimeError:
        return value.clone()


# Arguments: tensors inside of lists, mappings and objects


def map_structure(value: Any, change: Callable[[Any], Any], depth: int = 6) -> Any:
    """Return the value with `change` applied to what is no container; containers and objects with tensors are rebuilt."""
    if isinstance(value, Tensor | nn.Module | REFERENCES) or depth == 0:
        return change(value)
    if isinstance(value, PackedSequence):
        return PackedSequence(*(map_structure(one, change, depth - 1) for one in value))
    if type(value) in (list, tuple):
        return type(value)(map_structure(one, change, depth - 1) for one in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_structure(one, change, depth - 1) for one in value))
    if type(value) in (dict, OrderedDict):
        return type(value)((key, map_structure(one, change, depth - 1)) for key, one in value.items())
    if isinstance(value, slice | str | bytes | int | float | complex | None | type) or callable(value):
        return change(value)
    attributes = getattr(value, "__dict__", None)
    if isinstance(value, Mapping) and not isinstance(attributes, dict):
        return type(value)({key: map_structure(one, change, depth - 1) for key, one in value.items()})  # type: ignore[call-arg]
    if isinstance(attributes, dict) and _has_tensors(value, depth):
        changed = copy.copy(value)
        if isinstance(value, dict):
            for key, one in value.items():
                dict.__setitem__(changed, key, map_structure(one, change, depth - 1))
        for name, one in attributes.items():
            changed.__dict__[name] = map_structure(one, change, depth - 1)
        return changed
    return change(value)


def _has_tensors(value: Any, depth: int) -> bool:
    if isinstance(value, Tensor | REFERENCES):
        return True
    if depth == 0 or isinstance(value, str | bytes | int | float | None | type | nn.Module) or callable(value):
        return False
    members: list[Any] = []
    if isinstance(value, Mapping):
        members += value.values()
    elif isinstance(value, list | tuple):
        members += value
    members += getattr(value, "__dict__", {}).values()
    return any(_has_tensors(one, depth - 1) for one in members)


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors in a value, in an order that its structure alone decides."""
    found: list[Tensor] = []

    def keep(one: Any) -> Any:
        if isinstance(one, Tensor):
            found.append(one)
        return one

    map_structure(value, keep)
    return found


def references_in(value: Any) -> list[Any]:
    """Return the references in encoded arguments."""
    found: list[Any] = []

    def keep(one: Any) -> Any:
        if isinstance(one, REFERENCES):
            found.append(one)
        return one

    map_structure(value, keep)
    return found


# The circumstances of a call


class Clock:
    """Counts the contexts of autocast that were entered or left."""

    def __init__(self) -> None:
        self.now = 0

    def tick(self) -> None:
        self.now += 1


@dataclass(frozen=True)
class Environment:
    """The autocast that a call ran under."""

    casts: tuple[tuple[str, torch.dtype], ...] = ()
    cached: bool = True
    epoch: int = 0

    @classmethod
    def now(cls, clock: Clock) -> Environment:
        devices = ("cpu", "cuda", "mps") if torch.cuda.is_initialized() or torch.is_autocast_enabled("mps") else ("cpu",)  # type: ignore[no-untyped-call]
        casts = tuple((one, torch.get_autocast_dtype(one)) for one in devices if torch.is_autocast_enabled(one))
        return cls(casts, torch.is_autocast_cache_enabled(), clock.now if casts else 0)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for device, dtype in self.casts:
                stack.enter_context(torch.autocast(device, dtype=dtype, cache_enabled=self.cached))
            yield


@dataclass(frozen=True)
class Randomness:
    """The states of the random numbers at a call."""

    torch_state: Tensor
    cuda_states: tuple[Tensor, ...] = ()
    python_state: Any = None
    numpy_state: Any = None
    others: tuple[Callable[[], object], ...] = ()
    """what puts the script's own generators back"""

    @classmethod
    def now(cls, *, whole: bool = False, generators: Sequence[Any] = ()) -> Randomness:
        cuda = tuple(torch.cuda.get_rng_state_all()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
        if not whole:
            return cls(torch.get_rng_state(), cuda)
        numpy = sys.modules.get("numpy")
        states = random.getstate(), None if numpy is None else numpy.random.get_state()
        return cls(torch.get_rng_state(), cuda, *states, others=tuple(restorer(one) for one in generators))

    def restore(self) -> None:
        torch.set_rng_state(self.torch_state)
        for put_back in self.others:
            put_back()
        if self.cuda_states:
            torch.cuda.set_rng_state_all(list(self.cuda_states))
        if self.python_state is not None:
            random.setstate(self.python_state)
        if self.numpy_state is not None:
            import numpy as np

            np.random.set_state(self.numpy_state)


# Running it again


class Stage:
    """Where a program runs: which module and tensor stands for which of the script's."""

    def module(self, module: nn.Module) -> nn.Module:
        raise NotImplementedError

    def tensor(self, name: str) -> Tensor:
        raise NotImplementedError

    def optimizer(self, number: int | None) -> Any:
        """Return the optimiser that takes the step, or None if it is left out."""
        raise NotImplementedError


class Run:
    """One run of the actions of a step on a stage.

    exact   with the recorded random numbers, settings of the optimisers and writes of the script; `losses` are then compared with
            the recorded ones. Otherwise as it is on the stage
    """

    def __init__(self, stage: Stage, data: Mapping[Datum, Tensor], *, exact: bool) -> None:
        self.stage, self.exact = stage, exact
        self.losses: list[Tensor] = []
        """what backward was called on, before a GradScaler"""
        self.wrong: list[Backward] = []
        """backwards whose loss has other bits than the recorded one"""
        self.gradient_scale = 1.0
        self._data = data
        self._leaves: dict[Datum, Tensor] = {}
        self._results: dict[Call, list[Tensor]] = {}
        self._environment: Environment | None = None
        self._contexts = contextlib.ExitStack()
        self._overflow = False

    def run(self, actions: Iterable[Any]) -> None:
        """Carry the actions out in their order."""
        try:
            for action in actions:
                self._carry_out(action)
        finally:
            self._leave()

    def _carry_out(self, action: Any) -> None:
        if isinstance(action, Call):
            self._enter(action.environment)
            self._call(action)
        elif isinstance(action, Backward):
            self._backward(action)
        elif isinstance(action, ResetGradients):
            for name in action.names:
                tensor = self.stage.tensor(name)
                if action.to_none or tensor.grad is None:
                    tensor.grad = None
                else:
                    tensor.grad = tensor.grad.detach().zero_()
        elif isinstance(action, Clip):
            getattr(torch.nn.utils, action.function)(
                [self.stage.tensor(name) for name in action.names], *action.args, **action.kwargs
            )
        elif isinstance(action, Unscale):
            self._unscale(action)
        elif isinstance(action, Update):
            self._leave()
            self._update(action)
        elif isinstance(action, OverwriteGradients) and self.exact:
            for name, value in action.values.items():
                self.stage.tensor(name).grad = value.clone()
        elif isinstance(action, Overwrite) and self.exact:
            with torch.no_grad():
                for name, value in action.values.items():
                    self.stage.tensor(name).copy_(value)

    def _enter(self, environment: Environment) -> None:
        if environment != self._environment:
            self._leave()
            self._contexts.enter_context(environment.entered())
            self._environment = environment

    def _leave(self) -> None:
        self._contexts.close()
        self._environment = None

    def _call(self, call: Call) -> None:
        target = self.stage.module(call.target) if isinstance(call.target, nn.Module) else call.target
        args, kwargs = map_structure(call.args, self._decode), map_structure(call.kwargs, self._decode)
        if self.exact:
            call.randomness.restore()
        with torch.set_grad_enabled(call.graded), _synced(target, call.synced):
            result = target(*args, **kwargs)
        self._results[call] = [args[0]] if call.in_place else tensors_in(result)

    def _decode(self, one: Any) -> Any:
        if isinstance(one, Result):
            return self._results[one.call][one.index]
        if isinstance(one, Leaf):
            return self.stage.tensor(one.name)
        if isinstance(one, Datum):
            if not one.requires_grad:
                return self._data[one]
            if one not in self._leaves:
                self._leaves[one] = self._data[one].clone().requires_grad_()
            return self._leaves[one]
        if isinstance(one, Attribute):
            return getattr(bare(self.stage.module(one.call.target)).get_submodule(one.path), one.name)
        if isinstance(one, ModuleRef):
            return self.stage.module(one.module)
        return one

    def _backward(self, action: Backward) -> None:
        root = self._decode(action.root)
        gradient = None if action.gradient is None else self._data[action.gradient]
        self.gradient_scale = action.scale or 1.0
        loss = root.detach() if action.scale is None else root.detach() / action.scale
        self.losses.append(loss if gradient is None else (loss * gradient).sum())
        if self.exact and not _same_bits(loss, action.value):
            self.wrong.append(action)
        if root.requires_grad:
            root.backward(gradient, retain_graph=action.retain)

    def _unscale(self, action: Unscale) -> None:
        optimizer = self.stage.optimizer(action.optimizer)
        if optimizer is None:
            return
        gradients = [one.grad for group in optimizer.param_groups for one in group["params"] if one.grad is not None]
        if not gradients:
            return
        found = torch.zeros((), dtype=torch.float32, device=gradients[0].device)
        factor = torch.tensor(action.scale, dtype=torch.float64).reciprocal().float().to(gradients[0].device)
        for gradient in gradients:
            torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, factor)
        self._overflow = bool(found)  # the scaler then leaves the step out

    def _update(self, action: Update) -> None:
        optimizer = self.stage.optimizer(action.optimizer)
        if optimizer is None:
            return
        if self.exact:
            for group, settings in zip(optimizer.param_groups, action.settings, strict=True):
                group.update({key: one.clone() if isinstance(one, Tensor) else one for key, one in settings.items()})
        if action.closure is None:
            if self.exact or not self._overflow:
                optimizer.step()
            return
        rounds = iter(action.closure)
        first = action.closure[0] if action.closure else Closure()

        def closure() -> Tensor | None:
            round_ = next(rounds, None) if self.exact else first
            if round_ is None:
                raise ReplayError("the optimiser calls its closure more often in the replay")
            count = len(self.losses)
            with torch.enable_grad():
                self.run(round_.actions)
            return self.losses[count] if len(self.losses) > count else None

        optimizer.step(closure)


@contextlib.contextmanager
def _synced(target: Any, wanted: bool | None) -> Iterator[None]:
    """Inside of DistributedDataParallel.no_sync(), or outside of it, as the script was."""
    before = getattr(target, SYNC, None)
    if wanted is None or before is None or before == wanted:
        yield
        return
    setattr(target, SYNC, wanted)
    try:
        yield
    finally:
        setattr(target, SYNC, before)


class ReplayError(Exception):
    """A program cannot be run again."""


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and (torch.equal(one, other) or bool((one.isnan() & other.isnan()).all()))
    )


# The part of a step that trains one model


class Program:
    """What of a step trains a model, and the data that it takes: an experiment runs it on a copy and any batch like it."""

    def __init__(self, step: TapedStep, actions: Sequence[Any]) -> None:
        self.actions = list(actions)
        flat = [
            one for action in actions for one in (action, *(a for c in getattr(action, "closure", None) or () for a in c.actions))
        ]
        used = {one for action in flat for one in _references(action) if isinstance(one, Datum)}
        self.data = [datum for datum in step.data if datum in used]
        self.calls = [one for one in flat if isinstance(one, Call)]
        self.losses = [one.value for one in flat if isinstance(one, Backward)]

    def __deepcopy__(self, memo: Any) -> Program:
        return self  # batches are copied often, and a program is never changed

    def batch(self, step: TapedStep) -> Any:
        """Return the data as a dict, or as a list of dicts where backward runs several times in a step."""
        parts: dict[int, dict[str, Any]] = {}
        for datum in self.data:
            parts.setdefault(datum.micro, {})[datum.name] = step.data[datum]
        batches = [parts[micro] for micro in sorted(parts)] or [{}]
        batches[0][PROGRAM] = self
        return batches[0] if len(batches) == 1 else batches

    def read(self, batch: Any) -> dict[Datum, Tensor]:
        """Return the data of a batch, by what the program calls them."""
        micros = sorted({datum.micro for datum in self.data})
        parts = dict(zip(micros, batch if isinstance(batch, list) else [batch], strict=False))
        return {datum: parts[datum.micro][datum.name] for datum in self.data}


def program_of(batch: Any) -> Program:
    """Return the program that a taped batch carries."""
    first = batch[0] if isinstance(batch, list) else batch
    found: Program = first[PROGRAM]
    return found


def slice_of(
    step: TapedStep, numbers: Sequence[int], trained: Mapping[int, str], writers: Callable[[nn.Module], bool], *, whole: bool
) -> Program:
    """Return the part of a step that ends in these optimisers' updates.

    A backward whose gradients are dropped before the update has no part in it, such as a generator's, in the gradients of its
    discriminator.

    Args:
        step: the whole step
        numbers: of the optimisers
        trained: the names of their parameters, by id
        writers: whether a module is part of the model, so that calls which change its buffers belong to the step
        whole: keep every backward, for steps of which none reaches these optimisers' parameters
    """
    names, dropped = set(trained.values()), set[str]()
    kept: list[Any] = []
    last = max(
        (place for place, one in enumerate(step.actions) if isinstance(one, Update) and one.optimizer in numbers), default=-1
    )
    for place in range(len(step.actions) - 1, -1, -1):
        action = step.actions[place]
        if isinstance(action, Update):
            if place == last:
                kept.append(Update(action.optimizer, action.settings, action.closure))
        elif place > last >= 0:
            continue  # what comes after the update is the next step's
        elif isinstance(action, ResetGradients):  # also of weights that are held: theirs would pile up
            kept.append(action)
            dropped |= set(action.names)
        elif isinstance(action, Clip):
            if names & set(action.names):
                kept.append(Clip(action.function, tuple(one for one in action.names if one in names), action.args, action.kwargs))
        elif isinstance(action, Unscale):
            if action.optimizer in numbers:
                kept.append(action)
        elif isinstance(action, Backward):
            if whole or {trained[one] for one in action.reaches if one in trained} - dropped:
                kept.append(action)
        elif isinstance(action, Call):
            kept.append(action)
    kept.reverse()
    return Program(step, needed(kept, writers))


def needed(actions: Sequence[Any], writers: Callable[[nn.Module], bool]) -> list[Any]:
    """Return the actions without calls that no backward asks for; those that write into it or into buffers stay."""
    wanted: set[Call] = set()
    storages: set[int] = set()
    kept: list[Any] = []
    for action in reversed(actions):
        for closure in getattr(action, "closure", None) or ():
            closure.actions = needed(closure.actions, writers)
        if isinstance(action, Call):
            buffers = action.writes and isinstance(action.target, nn.Module) and writers(action.target)
            if not (action in wanted or buffers or action.written in storages):
                continue
        kept.append(action)
        for one in _references(action):
            if isinstance(one, Result | Attribute):
                wanted.add(one.call)
                storages |= one.call.storages
    return kept[::-1]


def _references(action: Any) -> list[Any]:
    if isinstance(action, Call):
        return references_in((action.args, action.kwargs))
    if isinstance(action, Backward):
        return [one for one in (action.root, action.gradient) if one is not None]
    return []
