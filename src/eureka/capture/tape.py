"""Tape some steps of a training loop: what it computes, as a program that can be run again on copies.

Two kinds of calls are recorded: of modules, when the script itself makes them, and of torch functions outside of modules. Inside
a module nothing of ours is active, so compiled, checkpointed and distributed modules run as they always do. Only calls whose
result needs a gradient count; everything else that enters such a call is data, and a copy of it is kept. So data loading, targets
under `no_grad`, teachers, replay buffers and random masks are cut off without being known by name.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import _SingleLevelFunction
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from eureka.capture.by_hand import rate_of
from eureka.capture.lines import Line, user_line
from eureka.capture.program import (
    SYNC,
    Attribute,
    Backward,
    Call,
    Clip,
    Clock,
    Closure,
    Datum,
    Environment,
    Leaf,
    ModuleRef,
    Overwrite,
    OverwriteGradients,
    Randomness,
    ResetGradients,
    Result,
    TapedStep,
    Unknown,
    Unscale,
    Update,
    copied_tensor,
    map_structure,
    tensors_in,
)
from eureka.capture.subject import Subject, bare, held_beside

DATA = Tensor.data.__get__  # type: ignore[attr-defined]
NOT_RECORDED = frozenset({"backward", "requires_grad_", "retain_grad", "register_hook", "__set__", "__delete__"})
"""Torch functions that compute nothing."""


class TapeError(Exception):
    """Something in a step cannot be recorded; the message says what and where."""


class Tape:
    """Records the steps of a loop while it runs; `steps` holds those that are complete.

    Args:
        subject: the modules and parameters that any optimiser trains
        optimizers: all that were seen to step, in the order of their first step
        ends: the optimiser whose update ends a step; None where weights are updated by hand: then each backward ends one
        on_step: called after each complete step
    """

    def __init__(
        self,
        subject: Subject,
        optimizers: Sequence[Optimizer],
        ends: Optimizer | None,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        self.subject, self.optimizers, self.ends = subject, list(optimizers), ends
        self.steps: list[TapedStep] = []
        self.problem = ""
        self.model_line: Line | None = None
        self.backward_line: Line | None = None
        self._generators = held_beside(subject, optimizers).generators
        self._group_sizes = [[len(group["params"]) for group in one.param_groups] for one in self.optimizers]
        self._thread = threading.get_ident()
        self._mode = _Listener(self)
        self._active = self._stopped = False
        self._undo = contextlib.ExitStack()
        self._produced: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._called: list[Call] = []
        self._on_step = on_step or (lambda: None)
        self._data: dict[tuple[int, int], tuple[Datum, Tensor]] = {}
        self._epoch = Clock()
        self._known_gradients: dict[int, tuple[int, int]] = {}
        self._known_weights = subject.weight_marks()
        self._exposed: set[str] = set()
        """weights whose `.data` the script has taken: what is written there leaves no mark"""
        self._moved: tuple[list[Tensor], list[Tensor | None]] | None = None
        """weights and gradients after the last backward, where the script updates by hand"""
        self.rates: list[tuple[float, float]] = []
        """the rates of updates by hand, each with the share of the move that it leaves unexplained"""
        self._scaled: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._step = TapedStep()
        self._open: list[list[Any]] = [self._step.actions]

    # The switch

    def start(self) -> None:
        """Begin to record; called between two steps."""
        self._undo.enter_context(_replaced(nn.Module, "__call__", self._module_call(nn.Module.__call__)))
        self._undo.enter_context(_replaced(torch.autograd, "backward", self._backward(torch.autograd.backward)))
        self._undo.enter_context(_replaced(Tensor, "backward", self._tensor_backward(Tensor.backward)))
        self._undo.enter_context(_replaced(torch.autograd, "grad", self._grad(torch.autograd.grad)))
        self._undo.enter_context(
            _added(
                _SingleLevelFunction,
                "apply",
                classmethod(lambda function, *args, **kwargs: self._apply(function, *args, **kwargs)),
            )
        )
        self._undo.enter_context(_replaced(Optimizer, "zero_grad", self._zero_grad(Optimizer.zero_grad)))
        self._undo.enter_context(_replaced(torch.amp.GradScaler, "scale", self._scale(torch.amp.GradScaler.scale)))
        self._undo.enter_context(_replaced(torch.amp.GradScaler, "unscale_", self._unscale(torch.amp.GradScaler.unscale_)))
        self._undo.enter_context(_replaced(torch.autocast, "__enter__", self._ticking(torch.autocast.__enter__)))
        self._undo.enter_context(_replaced(torch.autocast, "__exit__", self._ticking(torch.autocast.__exit__)))
        for name in ("clip_grad_norm_", "clip_grad_value_"):
            self._undo.enter_context(_replaced_everywhere(getattr(torch.nn.utils, name), self._clip))
        for optimizer in self.optimizers:
            for parameter in _parameters(optimizer):
                self._mark_gradient(parameter)
        self._activate()

    def stop(self) -> None:
        """Take everything back; nothing of the tape is left in the process."""
        self._stopped = True
        self._deactivate()
        self._undo.close()
        self._data.clear()
        self._called.clear()

    def _activate(self) -> None:
        if not self._active:
            _push_at_the_bottom(self._mode)
            self._active = True

    def _deactivate(self) -> None:
        if self._active:
            self._active = False
            _remove(self._mode)

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Inside, torch and the modules are as if nobody listened."""
        if not self._active:
            yield
            return
        listening = nn.Module.__call__
        self._deactivate()
        nn.Module.__call__ = self._plain_call  # type: ignore[method-assign]
        try:
            yield
        finally:
            if not self._stopped:  # a step by hand ends in here, and the tape may end with it
                nn.Module.__call__ = listening  # type: ignore[method-assign]
                self._activate()

    def is_recording(self) -> bool:
        """Return whether what happens now, in this thread, is recorded."""
        if torch.compiler.is_compiling():  # first, so that a compiler that traces through us sees nothing of ours
            return False
        return self._active and not self.problem and threading.get_ident() == self._thread

    def _fail(self, reason: str) -> None:
        self.problem = self.problem or reason

    # Calls

    def _module_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        self._plain_call = original

        @functools.wraps(original)
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if not self.is_recording():
                return original(module, *args, **kwargs)
            with self._paused():
                return self._record_module(module, args, kwargs)

        return call

    def _guard(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of ours; a fault of it ends the recording, not the user's run."""
        if self.problem:
            return None
        try:
            return function(*args)
        except Exception as error:
            return self._fail(f"the recording failed with {type(error).__name__}: {error}{at_line()}")

    def _record_module(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> Any:
        before = self._guard(self._before_module, module, args, kwargs)
        result = self._plain_call(module, *args, **kwargs)
        self._guard(self._after_module, module, args, kwargs, before, result)
        return result

    def _before_module(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any]) -> _Before:
        self._notice_writes()
        # The call may write into its arguments, so they are copied first; without gradient it is rarely kept.
        encoded = self._encode_call(module, args, kwargs) if torch.is_grad_enabled() else None
        buffers = {id(one): one._version for one in module.buffers()}
        return _Before(Randomness.now(whole=True, generators=self._generators), self._environment(), encoded, buffers)

    def _after_module(self, module: nn.Module, args: Any, kwargs: Mapping[str, Any], before: _Before, result: Any) -> None:
        outputs, graded = tensors_in(result), torch.is_grad_enabled()
        computes = graded and any(one.requires_grad for one in outputs)
        held = self.subject.holds(bare(module))
        writes = held and any(one._version != before.buffers.get(id(one)) for one in module.buffers())
        if not (computes or writes):
            return
        line = user_line()
        if computes and self.model_line is None and held:
            self.model_line = line
        call = Call(
            module,
            *(before.encoded or self._encode_call(module, args, kwargs)),
            environment=before.environment,
            randomness=before.randomness,
            graded=graded,
            writes=writes,
            outputs=len(outputs),
            line=line,
            synced=getattr(module, SYNC, None),
        )
        self._append_call(call, outputs)
        self._called.append(call)

    def record_function(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Call a torch function for the script, and record it if gradients flow through it."""
        before = self._guard(self._before_function, function, args, kwargs)
        result = function(*args, **kwargs)
        if before is not None:
            self._guard(self._after_function, function, args, kwargs, before, result)
        return result

    def _before_function(self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any]) -> _Before | None:
        """Return what has to be known from before a call; nothing if no gradient can flow through it."""
        name = getattr(function, "__name__", "")
        if name == "__get__" and function == DATA:
            self._expose(args[0])
            return None
        if name == "register_hook" and isinstance(args[0], Tensor) and self._produced.get(args[0]) is not None:  # type: ignore[no-untyped-call]
            self._fail(f"a hook on a tensor changes gradients{at_line()}")
        if not torch.is_grad_enabled() or name in NOT_RECORDED:
            return None
        given = tensors_in((args, kwargs))
        if not any(one.requires_grad for one in given):
            return None
        in_place = given[0] if _writes_in_place(name, kwargs) else None
        encoded = None if in_place is None else self._encode_call(function, args, kwargs)  # it may change its arguments
        return _Before(Randomness.now(), self._environment(), encoded, {}, in_place)

    def _after_function(
        self, function: Callable[..., Any], args: Any, kwargs: Mapping[str, Any], before: _Before, result: Any
    ) -> None:
        in_place = before.in_place is not None
        outputs = tensors_in(result) if before.in_place is None or result is not None else [before.in_place]
        if not any(one.requires_grad for one in outputs):
            return
        if self._moved is not None or self._exposed:  # what was written since then is in force from here on
            self._notice_writes()
        call = Call(
            function,
            *(before.encoded or self._encode_call(function, args, kwargs)),
            environment=before.environment,
            randomness=before.randomness,
            graded=True,
            writes=False,
            outputs=len(outputs),
            line=None,
            written=None if before.in_place is None else _storage(before.in_place),
            in_place=in_place and result is None,
        )
        self._append_call(call, outputs)

    def _append_call(self, call: Call, outputs: Sequence[Tensor]) -> None:
        call.storages = frozenset(storage for one in outputs if (storage := _storage(one)) is not None)
        self._open[-1].append(call)
        for index, tensor in enumerate(outputs):
            if tensor.requires_grad:
                self._produced[tensor] = Result(call, index)

    def _encode_call(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
        """The arguments with references in the place of tensors; data are named after the parameters that they are passed as."""
        names = _parameter_names(function, len(args))
        encoded = tuple(map_structure(one, functools.partial(self._encode, name)) for name, one in zip(names, args, strict=True))
        return encoded, {name: map_structure(one, functools.partial(self._encode, name)) for name, one in kwargs.items()}

    def _encode(self, name: str, value: Any) -> Any:
        if isinstance(value, nn.Module):
            return ModuleRef(value) if self.subject.holds(bare(value)) else value
        if not isinstance(value, Tensor):
            return value
        if value.requires_grad and torch.is_grad_enabled() and (made := self._produced.get(value)) is not None:  # type: ignore[no-untyped-call]
            return made
        if (leaf := self.subject.name_of(value)) is not None:
            return Leaf(leaf)
        if value.requires_grad and not value.is_leaf and torch.is_grad_enabled():
            return self._attribute(value) or self._unknown(value)
        return self._datum(name, value)

    def _datum(self, name: str, value: Tensor) -> Datum:
        key = (id(value), value._version if not value.is_inference() else -1)
        if key not in self._data:
            datum = Datum(self._step.micro, self._step.unused_name(name), value.requires_grad)
            self._step.add(datum, value)
            self._data[key] = (datum, value)  # the tensor is kept alive, so that no other gets its id
        return self._data[key][0]

    def _attribute(self, value: Tensor) -> Attribute | None:
        """A tensor that a module has left in one of its attributes during a recorded call, as mixtures of experts do."""
        for call in reversed(self._called):
            for path, part in bare(call.target).named_modules():
                for name, attribute in vars(part).items():
                    if attribute is value:
                        return Attribute(call, path, name)
        return None

    def _unknown(self, value: Tensor) -> Unknown:
        kind = type(value.grad_fn).__name__
        what = (
            "a compiled function"
            if "Compiled" in kind
            else "a custom autograd.Function or a function that torch does not announce"
        )
        return Unknown(
            f"a tensor with a gradient ({kind}) comes from outside of modules and torch's functions, from {what}{at_line()}"
        )

    def _environment(self) -> Environment:
        return Environment.now(self._epoch)

    def _ticking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A context of autocast keeps the casts of weights until it ends, so calls in one context share them."""

        @functools.wraps(original)
        def tick(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() == self._thread and self._active:
                self._epoch.tick()
            return original(*args, **kwargs)

        return tick

    # Events

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not self.is_recording():
                return original(tensors, grad_tensors, *args, **kwargs)
            with self._paused():
                self._guard(lambda: self._record_backward(tensors, grad_tensors, *args, **kwargs))
                result = original(tensors, grad_tensors, *args, **kwargs)
                self._guard(self._after_backward)
                if self.ends is None:
                    self._end_step_by_hand()
            return result

        return backward

    def _after_backward(self) -> None:
        changed = [one for one in self.subject.parameters() if self._gradient_mark(one) != self._known_gradients.get(id(one))]
        if self._open[-1] and isinstance(action := self._open[-1][-1], Backward):
            action.reaches = frozenset(map(id, changed))
        for parameter in changed:
            self._mark_gradient(parameter)

    def _tensor_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`loss.backward()` would call us from inside of our own mode, where the mode cannot be switched."""

        @functools.wraps(original)
        def backward(
            tensor: Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
        ) -> None:
            if self.is_recording():
                torch.autograd.backward(tensor, gradient, retain_graph=retain_graph, create_graph=create_graph, inputs=inputs)
            else:
                original(tensor, gradient, retain_graph, create_graph, inputs)

        return backward

    def _record_backward(self, tensors: Any, grad_tensors: Any, *args: Any, **kwargs: Any) -> None:
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if len(roots) != 1 or not isinstance(roots[0], Tensor):
            return self._fail(f"backward is called on {len(roots)} tensors at once{at_line()}")
        if kwargs.get("create_graph") or (len(args) > 1 and args[1]):
            return self._fail(f"backward is called with create_graph=True{at_line()}")
        if kwargs.get("inputs") is not None:
            return self._fail(f"backward is called with inputs=…{at_line()}")
        root = roots[0]
        if root.numel() != 1 and grad_tensors is None:
            return None  # torch refuses it
        self._notice_gradients()
        line = user_line()
        if self.backward_line is None:
            self.backward_line = line
        unscaled, scale = self._scaled.get(root, (root, None))  # type: ignore[no-untyped-call]
        encoded = self._encode("loss", root)
        given = grad_tensors[0] if isinstance(grad_tensors, list | tuple) else grad_tensors
        gradient = None if given is None else self._datum("gradient", given)
        value = unscaled.detach().clone()
        self._open[-1].append(
            Backward(encoded, gradient, value, scale, retain=bool(args[0] if args else kwargs.get("retain_graph")), line=line)
        )
        self._step.micro += 1
        return None

    def _grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A gradient that is part of a loss, as in gradient penalties and physics-informed losses, is a call like others."""

        @functools.wraps(original)
        def grad(*args: Any, **kwargs: Any) -> Any:
            if not self.is_recording():
                return original(*args, **kwargs)
            with self._paused():
                return self.record_function(original, args, kwargs)

        return grad

    def _apply(self, function: type, *args: Any, **kwargs: Any) -> Any:
        """A function with a backward of its own is a call like others, also outside of modules.

        It stands below the `apply` that scripts see, as they keep that one under names of their own.
        """
        apply = super(_SingleLevelFunction, function).apply  # type: ignore[misc]
        if not self.is_recording():
            return apply(*args, **kwargs)
        with self._paused():
            return self.record_function(apply, args, kwargs)

    def _zero_grad(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def zero_grad(optimizer: Optimizer, set_to_none: bool = True) -> None:
            if not self.is_recording():
                original(optimizer, set_to_none=set_to_none)
                return
            with self._paused():
                original(optimizer, set_to_none=set_to_none)
                self._guard(self._notice_gradients)

        return zero_grad

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            if self.is_recording() and isinstance(outputs, Tensor) and scaler.is_enabled():
                with self._paused():
                    self._scaled[result] = (outputs.detach(), float(scaler.get_scale()))
            return result

        return scale

    def _unscale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Optimizer) -> Any:
            recording = self.is_recording() and scaler.is_enabled()
            with self._paused():
                if recording:
                    self._guard(self._notice_gradients)
                result = original(scaler, optimizer)
                if recording:
                    inner = getattr(optimizer, "optimizer", optimizer)
                    self._guard(
                        self._append_gradient_event, Unscale(self._number(inner), float(scaler.get_scale())), _parameters(inner)
                    )
            return result

        return unscale_

    def _clip(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
            if not self.is_recording():
                return original(parameters, *args, **kwargs)
            with self._paused():
                self._guard(self._notice_gradients)
                names = [self.subject.name_of(one) for one in parameters]
                result = original(parameters, *args, **kwargs)
                clip = Clip(original.__name__, tuple(name for name in names if name is not None), args, dict(kwargs))
                self._guard(self._append_gradient_event, clip, parameters)
            return result

        return clip

    def _append_gradient_event(self, event: Any, parameters: Sequence[Tensor]) -> None:
        self._open[-1].append(event)
        for parameter in parameters:
            self._mark_gradient(parameter)

    def before_update(self, optimizer: Optimizer, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Record that an optimiser begins its step; what it returns takes the place of the arguments."""
        return self._guard(self._before_update, optimizer, args, kwargs)

    def _before_update(self, optimizer: Optimizer, args: Any, kwargs: Mapping[str, Any]) -> Any:
        if not self.is_recording() or (number := self._number(optimizer)) is None:
            return None
        self._deactivate()
        self._notice_gradients()
        self._notice_writes()
        if [len(group["params"]) for group in optimizer.param_groups] != self._group_sizes[number]:
            self._fail("the script gives its optimiser other parameters meanwhile")
        settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
        update = Update(number, _copied_settings(settings))
        self._open[-1].append(update)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # the first is the optimiser
        if not callable(closure):
            return None
        update.closure = []
        wrapped = self._recorded_closure(closure, update)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _recorded_closure(self, closure: Callable[[], Any], update: Update) -> Callable[[], Any]:
        """An optimiser may call its closure several times; each call is recorded by itself."""

        @functools.wraps(closure)
        def call() -> Any:
            round_ = Closure()
            assert update.closure is not None
            update.closure.append(round_)
            self._open.append(round_.actions)
            # An optimiser may have written the weights since the closure ran last; a replay does so, too.
            self._known_weights = self.subject.weight_marks()
            self._activate()
            try:
                return closure()
            finally:
                self._deactivate()
                self._open.pop()

        return call

    def after_update(self, optimizer: Optimizer) -> None:
        """Listen on after the step of an optimiser; that of the last one ends the step of the loop."""
        if self._number(optimizer) is None:
            return
        self._known_weights = self.subject.weight_marks()
        for parameter in _parameters(optimizer):
            self._mark_gradient(parameter)
        if not self._stopped:
            self._activate()
        if optimizer is self.ends:
            self.end_step()

    def end_step(self) -> None:
        """Close the step that is recorded, and begin the next."""
        if reason := self._guard(self._step.close, self.subject.holds):
            self._fail(reason)
        self.steps.append(self._step)
        self._step = TapedStep()
        self._open = [self._step.actions]
        self._data.clear()
        self._called.clear()
        self._on_step()

    def _end_step_by_hand(self) -> None:
        """Where the script updates weights itself, a step ends after backward; the update is seen when the next one begins."""
        weights = [one for optimizer in self.optimizers for one in _parameters(optimizer)]
        self._moved = (
            [one.detach().clone() for one in weights],
            [None if one.grad is None else one.grad.detach().clone() for one in weights],
        )
        self._open[-1].append(Update(0, [{"lr": 0.0}]))
        self.end_step()

    def _expose(self, tensor: Tensor) -> None:
        """The script takes `.data` of a tensor, and may write to it."""
        if (name := self.subject.name_of(tensor)) is not None:
            self._exposed.add(name)
        else:
            for parameter in self.subject.parameters():
                if parameter.grad is tensor:
                    self._known_gradients[id(parameter)] = (-1, -1)

    def _number(self, optimizer: Any) -> int | None:
        return next((number for number, one in enumerate(self.optimizers) if one is optimizer), None)

    # What the script changes by itself

    def _gradient_mark(self, parameter: Tensor) -> tuple[int, int]:
        return (0, 0) if parameter.grad is None else (id(parameter.grad), parameter.grad._version)

    def _mark_gradient(self, parameter: Tensor) -> None:
        self._known_gradients[id(parameter)] = self._gradient_mark(parameter)

    def _notice_gradients(self) -> None:
        """Record which gradients were dropped, zeroed or changed since the last event."""
        dropped, zeroed, changed = [], [], {}
        for parameter in self.subject.parameters():
            mark, known = self._gradient_mark(parameter), self._known_gradients.get(id(parameter), (0, 0))
            if mark == known:
                continue
            name = self.subject.name_of(parameter)
            assert name is not None
            if parameter.grad is None:
                dropped.append(name)
            elif known == (0, 0) or not _is_zero(parameter.grad):
                self._step.by_hand = self._step.by_hand or f"gradients are changed by hand{at_line()}"
                changed[name] = copied_tensor(parameter.grad)
            else:
                zeroed.append(name)
            self._mark_gradient(parameter)
        if dropped:
            self._open[-1].append(ResetGradients(tuple(dropped), to_none=True))
        if zeroed:
            self._open[-1].append(ResetGradients(tuple(zeroed), to_none=False))
        if changed:
            self._open[-1].append(OverwriteGradients(changed))

    def _notice_writes(self) -> None:
        """Record weights that the script has written besides the optimiser, such as clipped or averaged ones."""
        marks = self.subject.weight_marks()
        if self._moved is not None:
            before, gradients = self._moved
            weights = [one for optimizer in self.optimizers for one in _parameters(optimizer)]
            self.rates.append(rate_of(before, gradients, [one.detach() for one in weights]))
            self._exposed |= set(marks)
            self._moved = None
        if marks != self._known_weights or self._exposed:
            values = {
                name: self.subject.tensor(name).detach().clone()
                for name, mark in marks.items()
                if mark != self._known_weights.get(name) or name in self._exposed
            }
            self._exposed = set()
            self._open[-1].append(Overwrite(values))
            self._step.overwritten = True
            self._known_weights = marks


class _Before(NamedTuple):
    """What has to be known of a call from before it was made."""

    randomness: Randomness
    environment: Environment
    encoded: tuple[Any, Any] | None
    buffers: dict[int, int]
    in_place: Tensor | None = None


class _Listener(TorchFunctionMode):
    """Announces every call of a torch function to the tape."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._tape = tape

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return self._tape.record_function(func, args, kwargs) if self._tape.is_recording() else func(*args, **kwargs)


def at_line() -> str:
    """Where in the user's script, as the end of a sentence."""
    line = user_line()
    return "" if line is None else f", at {line}"


def _push_at_the_bottom(mode: TorchFunctionMode) -> None:
    """A context of the script's that ends while we listen takes the mode on top away, so ours lies below all of them."""
    from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode

    others = [_pop_mode() for _ in _get_current_function_mode_stack()][::-1]  # type: ignore[no-untyped-call]
    default_device = [one for one in others if type(one).__name__ == "DeviceContext"][:1]  # torch wants it below all
    for one in [*default_device, mode, *(one for one in others if one not in default_device)]:
        _push_mode(one)  # type: ignore[no-untyped-call]


def _remove(mode: TorchFunctionMode) -> None:
    from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode

    others = [_pop_mode() for _ in _get_current_function_mode_stack()][::-1]  # type: ignore[no-untyped-call]
    for one in others:
        if one is not mode:
            _push_mode(one)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    original = holder.__dict__[name] if isinstance(holder, type) else getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, original)


@contextlib.contextmanager
def _added(holder: type, name: str, value: Any) -> Iterator[None]:
    """Give a class a member that it inherits otherwise."""
    setattr(holder, name, value)
    try:
        yield
    finally:
        delattr(holder, name)


@contextlib.contextmanager
def _replaced_everywhere(original: Any, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function in every module that has it, as `from torch.nn.utils import clip_grad_norm_` copies the name."""
    wrapped, places = wrap(original), []
    for module in list(sys.modules.values()):
        for name, value in list(getattr(module, "__dict__", {}).items()):
            if value is original:
                places.append((module, name))
    for module, name in places:
        setattr(module, name, wrapped)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [one for group in optimizer.param_groups for one in group["params"]]


def _copied_settings(settings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: one.clone() if isinstance(one, Tensor) else one for key, one in group.items()} for group in settings]


def _is_zero(gradient: Tensor) -> bool:
    values = gradient.coalesce().values() if gradient.is_sparse else gradient
    return not bool(values.any())


def _storage(tensor: Tensor) -> int | None:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):  # a sparse tensor has none
        return None


def _writes_in_place(name: str, kwargs: Mapping[str, Any]) -> bool:
    special = name.startswith("__i") and name.endswith("__") and name not in ("__invert__", "__index__", "__int__")
    return special or name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or kwargs.get("inplace") is True


@functools.lru_cache(maxsize=1024)
def _signature(function: Any) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except Exception:  # torch.jit's scripted modules raise what they like
        return ()
    return tuple(one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD))


def _parameter_names(function: Any, count: int) -> list[str]:
    """What the positional arguments of a call are called."""
    if isinstance(function, nn.Module):
        names = () if isinstance(function, torch.jit.ScriptModule) else _signature(type(bare(function)).forward)[1:]
        short = type(function).__name__.lower()
    else:
        names = _signature(function) if inspect.isfunction(function) else ()
        short = getattr(function, "__name__", "data").strip("_")
    return [*names[:count], *(f"{short}_{place}" for place in range(len(names), count))]
