"""Prove a tape: replay its steps and compare every loss and the weights after the last step, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from eureka.capture.program import Backward, Call, Program, ReplayError, Run, Stage, TapedStep, program_of, slice_of
from eureka.capture.subject import Subject, bare
from eureka.forks.case import Fork
from eureka.forks.copies import deep_copies
from eureka.forks.joined import Joined
from eureka.forks.state import KeptState
from eureka.random_state import kept_random_state
from eureka.uncompiled import uncompiled

CLOSE = 1e-3
"""Relative difference between the loss of a compiled model and of its copy, which runs uncompiled."""


@dataclass(frozen=True)
class Proof:
    """What a replay has shown."""

    steps: int
    wrong_losses: int
    """steps in which a loss had other bits"""
    first_wrong: str
    """where the first of them was: the step, and the operation on which backward was called"""
    step_exact: bool
    """whether the weights, buffers and states of the optimisers had the same bits after the last step"""
    differing: str
    """the first that had not"""
    weights_compared: bool = True
    """whether they could be: a run that has gone on has other weights"""
    note: str = ""
    """what is true of the copies, in a sentence"""

    @property
    def loss_exact(self) -> bool:
        return not self.wrong_losses


class CopyStage(Stage):
    """Copies of the subject as it was when taping began."""

    def __init__(self, subject: Subject, optimizers: Sequence[Optimizer]) -> None:
        self.subject = subject
        subject.root.__dict__["_eureka_others"] = list(optimizers[1:])
        try:
            first = optimizers[0] if optimizers else torch.optim.SGD([torch.zeros(1)], lr=0.0)
            root, optimizer = deep_copies(subject.root, first)
        finally:
            del subject.root.__dict__["_eureka_others"]
        self.root = root
        self.optimizers: list[Any] = [optimizer, *root.__dict__.pop("_eureka_others")] if optimizers else []
        self._tensors = dict(root.named_parameters(remove_duplicate=False))
        for name, one in subject.root.named_parameters(remove_duplicate=False):
            if one.grad is not None:
                self._tensors[name].grad = one.grad.detach().clone()
        self._others: dict[int, nn.Module] = {}

    def module(self, module: nn.Module) -> nn.Module:
        path = self.subject.path(module)
        if path is not None:
            return self.root.get_submodule(path)
        if id(module) not in self._others:
            self._others[id(module)] = copy.deepcopy(bare(module))
        return self._others[id(module)]

    def tensor(self, name: str) -> Tensor:
        return self._tensors[name]

    def optimizer(self, number: int | None) -> Any:
        return None if number is None or number >= len(self.optimizers) else self.optimizers[number]


class LiveStage(Stage):
    """The script's own modules and optimisers, compiled and distributed as they are."""

    def __init__(self, subject: Subject, optimizers: Sequence[Optimizer]) -> None:
        self.subject, self.optimizers = subject, optimizers

    def module(self, module: nn.Module) -> nn.Module:
        return module

    def tensor(self, name: str) -> Tensor:
        return self.subject.tensor(name)

    def optimizer(self, number: int | None) -> Any:
        return None if number is None or number >= len(self.optimizers) else self.optimizers[number]


def prove(
    steps: Sequence[TapedStep], start: CopyStage, subject: Subject, optimizers: Sequence[Optimizer], *, went_on: bool = False
) -> Proof:
    """Replay all steps from the state at which taping began.

    A model that is compiled or distributed is replayed as it is: the state of then is put into the script's own objects, and that
    of now is put back. Copies of it run uncompiled and alone; that their loss is close to the recorded one is checked as well.

    Args:
        steps: as they were taped
        start: copies from before the first step; they are trained here
        subject: the script's own, after the last step
        optimizers: the script's own
        went_on: whether the script has trained on since the last step; then only the losses are compared, each of which depends
            on all updates before it
    """
    wrapped = [call for step in steps for call in step.all_actions() if isinstance(call, Call) and _is_wrapped(call.target)]
    with kept_random_state():
        if not wrapped:
            wrong = _run(steps, start)
            if went_on:
                return _compared(steps, wrong, {}, {})
            return _compared(steps, wrong, _state(subject.root, optimizers), _state(start.root, start.optimizers))
        here = Fork(subject.root, Joined(*optimizers) if len(optimizers) > 1 else optimizers[0])
        then = Fork(start.root, Joined(*start.optimizers) if len(optimizers) > 1 else start.optimizers[0])
        now, before = KeptState(here), KeptState(then)
        after = copy.deepcopy(_state(subject.root, optimizers))
        before.put(here)
        try:
            live = LiveStage(subject, optimizers)
            wrong = _run(steps, live)
            proof = _compared(steps, wrong, {} if went_on else after, _state(subject.root, optimizers))
        finally:
            now.put(here)
        note = _copies_close(steps[0], start)
    return replace(proof, note=note)


def _is_wrapped(target: Any) -> bool:
    """Whether a module runs in another way than its copies do: compiled or distributed."""
    if not isinstance(target, nn.Module):
        return False
    return bare(target) is not target or any(getattr(one, "_compiled_call_impl", None) is not None for one in target.modules())


def _run(steps: Sequence[TapedStep], stage: Stage) -> list[list[Backward]]:
    """Return, for each step, the backwards whose loss has other bits."""
    wrong = []
    for step in steps:
        data = {datum: value.clone() for datum, value in step.data.items()}  # a step may write into them
        run = Run(stage, data, exact=True)
        run.run(step.actions)
        wrong.append(run.wrong)
    return wrong


def _compared(steps: Sequence[TapedStep], wrong: list[list[Backward]], ours: dict[str, Any], theirs: dict[str, Any]) -> Proof:
    bad = [place for place, one in enumerate(wrong) if one]
    where = ""
    if bad:
        line = wrong[bad[0]][0].line
        where = f"step {bad[0] + 1} of the tape" + ("" if line is None else f", backward at {line}")
    differing = next((name for name in ours if not _same(ours[name], theirs.get(name))), "")
    return Proof(len(steps), len(bad), where, not differing, differing, weights_compared=bool(ours))


def _state(root: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
    """Everything that a step changes, by name."""
    found: dict[str, Any] = {**dict(root.named_parameters()), **dict(root.named_buffers())}
    for number, optimizer in enumerate(optimizers):
        for place, one in enumerate(one for group in optimizer.param_groups for one in group["params"]):
            for key, value in optimizer.state.get(one, {}).items():
                found[f"{type(optimizer).__name__} {number + 1}: {key} of parameter {place + 1}"] = value
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.layout != torch.strided:
            one, other = one.to_dense(), other.to_dense()
        return one.shape == other.shape and (
            torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())
        )
    if isinstance(one, int | float | str | bool | None):
        return bool(one == other) or (isinstance(one, float) and one != one and other != other)
    return True  # lists of tensors and the like show in the weights


def _copies_close(step: TapedStep, start: CopyStage) -> str:
    """Return a sentence on the loss of copies, which are neither compiled nor distributed."""
    # The copies are as they were before the first step: only the live objects were trained in the replay.
    run = Run(start, {datum: value.clone() for datum, value in step.data.items()}, exact=True)
    with uncompiled():
        run.run(step.actions)
    pairs = [(float(a.float().mean()), float(b.value.float().mean())) for a, b in zip(run.losses, step.backwards, strict=False)]
    apart = max((abs(a - b) / max(abs(b), 1e-12) for a, b in pairs), default=0.0)
    if apart > CLOSE:
        raise ReplayError(f"the loss of a copy that is neither compiled nor distributed differs by {apart:.1%}")
    how = f"differs by {apart:.0e} of its size" if apart else "has the same bits"
    return f"Experiments run on copies that are neither compiled nor distributed; their loss {how}."


# Experiments


class TapedTraining:
    """The step of an experiment: what the script does in a step, on a copy of the model and a taped batch.

    Modules that another optimiser trains are held as they are.
    """

    def __init__(self, subject: Subject, path: str | None) -> None:
        self.subject, self.path = subject, path
        self.model = subject.root if path is None else subject.root.get_submodule(path)
        self._run: Run | None = None
        self._stages: Any = _StageCache()

    def __call__(self, model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        program = program_of(batch)
        stage = self._stages.get(model)
        if stage is None or stage.trained_by is not optimizer:
            stage = ExperimentStage(self.subject, self.path, self.model, model, optimizer)
            self._stages.put(model, stage)
        run = Run(stage, program.read(batch), exact=False)
        self._run = run
        run.run(program.actions)
        self._run = None  # it holds the graph
        losses = run.losses
        if not losses:
            return torch.full((), float("nan"))
        return (
            losses[0]
            if len(losses) == 1 or isinstance(optimizer, torch.optim.LBFGS)
            else torch.stack([one.float() for one in losses]).sum()
        )

    @property
    def gradient_scale(self) -> float:
        """What the gradients of the step that is run now are multiplied by until a GradScaler divides them."""
        return 1.0 if self._run is None else self._run.gradient_scale

    def __deepcopy__(self, memo: Any) -> TapedTraining:
        return self


class _StageCache:
    """The stage of the copy that trains now; a weak reference, so that copies are freed."""

    def __init__(self) -> None:
        self._model: Any = None
        self._stage: Any = None

    def get(self, model: nn.Module) -> Any:
        return self._stage if self._model is not None and self._model() is model else None

    def put(self, model: nn.Module, stage: Any) -> None:
        import weakref

        self._model, self._stage = weakref.ref(model, lambda _: setattr(self, "_stage", None)), stage


class ExperimentStage(Stage):
    """A copy of the model with its optimiser; everything else is copied from the script, once for this model."""

    def __init__(self, subject: Subject, path: str | None, live: nn.Module, model: nn.Module, optimizer: Optimizer) -> None:
        import weakref

        self.subject, self.live, self.trained_by = subject, live, optimizer
        self._model = weakref.ref(model)
        self._prefix = "" if path is None else f"{path}."
        self._paths = {id(one): name for name, one in live.named_modules()}
        self._names = {id(one): name for name, one in live.named_parameters(remove_duplicate=False)}
        # What the others share with the model, they share with its copy.
        mine, copies = dict(live.named_modules()), dict(model.named_modules())
        self._parameters = dict(model.named_parameters(remove_duplicate=False))  # plain tensors among them
        self._memo: dict[int, Any] = {id(one): copies[name] for name, one in mine.items() if name in copies}
        tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
        for name, one in [*live.named_parameters(remove_duplicate=False), *live.named_buffers(remove_duplicate=False)]:
            if name in tensors:
                self._memo[id(one)] = tensors[name]
        self._held: dict[int, nn.Module] = {}

    @property
    def model(self) -> nn.Module:
        found = self._model()
        assert found is not None
        return found

    def module(self, module: nn.Module) -> nn.Module:
        module = bare(module)
        name = self._paths.get(id(module))
        if name is not None:
            return self.model.get_submodule(name) if name else self.model
        if id(module) not in self._held:
            self._held[id(module)] = copy.deepcopy(module, self._memo)
        return self._held[id(module)]

    def tensor(self, name: str) -> Tensor:
        live = self.subject.tensor(name)
        own = self._names.get(id(live))
        if own is not None:
            return self._parameters[own]
        copied: Tensor = copy.deepcopy(live, self._memo)
        return copied

    def optimizer(self, number: int | None) -> Any:
        return self.trained_by


def programs(
    steps: Sequence[TapedStep], subject: Subject, model: nn.Module, numbers: Sequence[int], optimizers: Sequence[Optimizer]
) -> list[tuple[TapedStep, Program]]:
    """Return what each step does for these optimisers; steps whose losses do not reach them are left out, unless all do not."""
    trained = {}
    for number in numbers:
        for group in optimizers[number].param_groups:
            for one in group["params"]:
                if (name := subject.name_of(one)) is not None:
                    trained[id(one)] = name
    inside = {id(one) for one in model.modules()}
    for whole in (False, True):
        found = [
            (step, slice_of(step, numbers, trained, lambda module: id(bare(module)) in inside, whole=whole)) for step in steps
        ]
        found = [(step, program) for step, program in found if program.losses]
        if found:
            break
    return found
