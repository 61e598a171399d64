"""Watch a training loop from its first step: the loss of every step of every optimiser, and nothing else."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakTensorKeyDictionary

from eureka.capture.by_hand import HandSuspicion, UpdatesByHand
from eureka.capture.lines import Line, name_in_script, user_line
from eureka.curves.online import Event, OnlineDetector

if TYPE_CHECKING:
    from eureka.capture.tape import Tape

LATE_READS = 64
"""Losses on an accelerator that may wait to be read, so that reading them never waits for the device."""
NAMED_BACKWARDS = 20
"""Backwards whose loss is looked up by its name in the script; later ones are the same."""
COUNTED_EVERY = 256
"""Steps between two counts of an optimiser's parameters."""
LOOKED_AT = 3
"""Calls of a compiled function in which it is looked whether weights change."""
BY_HAND, LOOKED_FOR_HAND = 3, 100
"""From how many backwards, and up to how many, without a step of any optimiser it is asked whether weights change all the same.
"""


@dataclass(eq=False)
class Watched:
    """An optimiser with what was seen of it."""

    number: int
    reference: weakref.ReferenceType[Optimizer]
    kind: str
    made_at: Line | None
    loss_name: str = ""
    steps: int = 0
    curve: list[tuple[int, float]] = field(default_factory=list)
    detector: OnlineDetector = field(default_factory=OnlineDetector)
    event: Event | None = None
    """the last one"""
    rounds: deque[int] = field(default_factory=lambda: deque([0], maxlen=2))
    """how many times backward had run at its last two steps"""
    nonfinite: int = 0
    """losses in a row that are no finite number"""
    waiting: deque[tuple[int, Tensor, Any]] = field(default_factory=deque)
    _elements: int = 0
    _counted_again: int = 0

    @property
    def optimizer(self) -> Optimizer | None:
        return self.reference()

    @property
    def elements(self) -> int:
        """How many numbers it trains, or trained; counted rarely, as it is asked after every step."""
        if self.steps >= self._counted_again and (optimizer := self.optimizer) is not None:
            self._counted_again = self.steps + COUNTED_EVERY
            self._elements = sum(one.numel() for group in optimizer.param_groups for one in group["params"])
        return self._elements

    def add(self, step: int, loss: Tensor) -> None:
        """Take the loss of a step; on an accelerator it is read once the device has computed it."""
        if loss.device.type == "cpu":
            self._take(step, float(loss))
            return
        if loss.device.type == "cuda":
            value = torch.empty((), dtype=loss.dtype, pin_memory=True)
            value.copy_(loss, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
            self.waiting.append((step, value, done))
        else:
            self.waiting.append((step, loss, None))
        while self.waiting and (self._is_done(self.waiting[0][2]) or len(self.waiting) > LATE_READS):
            first, value, _ = self.waiting.popleft()
            self._take(first, float(value))

    def _is_done(self, event: Any) -> bool:
        return event is not None and bool(event.query())

    def _take(self, step: int, value: float) -> None:
        self.curve.append((step, value))
        self.nonfinite = 0 if abs(value) < float("inf") else self.nonfinite + 1  # nan compares false
        event = self.detector.update(step, value)
        if event is not None:
            self.event = event


class Watch:
    """Hooks on every optimiser's step and on backward; `on_step` is called after each step with what was seen.

    What it does not see: other threads and other processes.
    """

    def __init__(self, on_step: Callable[[Watched], None]) -> None:
        self.watched: list[Watched] = []
        self.backwards = 0
        self.first_step_at: float | None = None
        self.on_compiled_step: Callable[[str], None] = lambda name: None
        """called with the name of a compiled function that has made a step unseen"""
        self.unstepped = 0
        """backwards since an optimiser has stepped"""
        self.hand: UpdatesByHand | None = None
        """what stands for the script's own updates, if it has no optimiser"""
        self._suspicion: HandSuspicion | None = None
        self.tape: Tape | None = None
        """what records, if anything does: optimisers must not get hooks while theirs run, so it is told by the ones here"""
        self.off = self._finished = False
        self.is_arm = False
        """whether this process is a fork that tries something"""
        self._on_step = on_step
        self._losses: list[Tensor] = []
        self._scaled: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        self._made: weakref.WeakKeyDictionary[Optimizer, Line] = weakref.WeakKeyDictionary()
        self._by_id: dict[int, Watched] = {}
        self._depth = 0
        self._before = 0
        self._thread: int | None = None
        """the thread that trains: the first one that calls backward"""
        self._process = os.getpid()
        self._undo = contextlib.ExitStack()

    def start(self) -> None:
        self._undo.callback(register_optimizer_step_pre_hook(self._before_step).remove)
        self._undo.callback(register_optimizer_step_post_hook(self._after_step).remove)
        self._undo.enter_context(_wrapped(torch.autograd, "backward", self._backward))
        self._undo.enter_context(_wrapped(torch.amp.GradScaler, "scale", self._scale))
        self._undo.enter_context(_wrapped(Optimizer, "__init__", self._optimizer_made))
        self._undo.enter_context(_wrapped(torch, "compile", self._compile))

    def stop(self) -> None:
        self._undo.close()

    def become(self, on_step: Callable[[Watched], None]) -> None:
        """Watch on in a process that was forked from this one."""
        self._process, self._thread, self._on_step = os.getpid(), threading.get_ident(), on_step
        self.is_arm = True

    def finish(self) -> None:
        """See nothing from here on. An optimiser must not lose its hooks while they run: they go a little later."""
        self.off = self._finished = True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Inside, what trains is not the script."""
        before, self.off = self.off, True
        try:
            yield
        finally:
            self.off = before or self._finished

    @property
    def busiest(self) -> Watched | None:
        """The optimiser with most parameters among those that are alive; if none is, as after a loop, among all."""
        return max(self.watched, key=lambda one: (one.optimizer is not None, one.elements), default=None)

    def partners(self, main: Watched) -> list[Watched]:
        """Return the optimisers that step after the same backward as `main`, in the order of their steps, itself included."""
        alive = [one for one in self.watched if one.optimizer is not None]
        return [one for one in alive if one is main or (set(one.rounds) & set(main.rounds)) - {0}]

    def _is_here(self) -> bool:
        """Return whether this is the process and the thread that train."""
        return self._thread in (None, threading.get_ident()) and os.getpid() == self._process

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():  # a compiler that traces through us shall see nothing of ours
                return original(tensors, *args, **kwargs)
            if self._finished and self._is_here():
                self.stop()
            if not self.off and self._is_here():
                self._thread = threading.get_ident()
                roots = [tensors] if isinstance(tensors, Tensor) else list(tensors) if isinstance(tensors, list | tuple) else []
                for root in roots:
                    if isinstance(root, Tensor):
                        value = self._scaled.get(root, root.detach())  # type: ignore[no-untyped-call]
                        self._losses.append(value if value.numel() == 1 else value.float().mean())
                self.backwards += 1
                self.unstepped += 1
                self._last_root = weakref.ref(roots[0]) if roots and isinstance(roots[0], Tensor) else None
                if self.backwards <= NAMED_BACKWARDS:
                    self._last_name = name_in_script(roots[0]) if roots else ""
                looks_by_hand = self.unstepped >= BY_HAND and not self.watched and not self._depth  # in no optimiser's step
                if self.hand is not None or looks_by_hand:
                    by_hand = self._is_by_hand(roots)
                    result = original(tensors, *args, **kwargs)
                    if by_hand and self.hand is not None:
                        self._add_step(self.hand)
                    return result
            return original(tensors, *args, **kwargs)

        return backward

    def _is_by_hand(self, roots: Sequence[Any]) -> bool:
        """Return whether the script updates its weights itself; asked before backward has freed the graph."""
        if self.hand is not None or not roots or not isinstance(roots[0], Tensor):
            return self.hand is not None
        if self._suspicion is not None and self._suspicion.holds(roots[0]):
            with self.paused():
                self.hand = UpdatesByHand(self._suspicion.weights)
            return True
        if self.unstepped < LOOKED_FOR_HAND:
            self._suspicion = HandSuspicion(roots[0])
        return False

    def _scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def scale(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            if torch.compiler.is_compiling():
                return result
            if self._is_here() and isinstance(outputs, Tensor) and scaler.is_enabled():
                self._scaled[result] = outputs.detach()
            return result

        return scale

    def _optimizer_made(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            if self._is_here() and (line := user_line()) is not None:
                self._made[optimizer] = line

        return init

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Models may be compiled; of a function it is looked whether it makes the step, which nobody sees then."""

        @functools.wraps(original)
        def compile(model: Any = None, **kwargs: Any) -> Any:
            if model is None:
                return lambda function: compile(function, **kwargs)
            compiled = original(model, **kwargs)
            return compiled if isinstance(model, torch.nn.Module) else self._looked_at(compiled, model)

        return compile

    def _looked_at(self, compiled: Callable[..., Any], function: Any) -> Callable[..., Any]:
        calls = 0

        @functools.wraps(compiled)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            if calls >= LOOKED_AT or torch.compiler.is_compiling() or self.off or not self._is_here():
                return compiled(*args, **kwargs)
            calls += 1
            seen, before = sum(one.steps for one in self.watched), self._weight_versions()
            result = compiled(*args, **kwargs)
            if sum(one.steps for one in self.watched) == seen and self._weight_versions() != before:
                calls = LOOKED_AT
                self.on_compiled_step(getattr(function, "__name__", "a function"))
            return result

        return call

    def _weight_versions(self) -> list[int]:
        return [one._version for optimizer in self._made for group in optimizer.param_groups for one in group["params"]]

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or self.off or not self._is_here():
            return None
        self._depth += 1  # an optimiser may step another one inside of its own step
        if self._depth > 1:
            return None
        self._before = len(self._losses)
        return None if self.tape is None else self.tape.before_update(optimizer, args, kwargs)

    def _after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or self.off or not self._is_here():
            return
        self._depth = max(self._depth - 1, 0)
        if self._depth:
            return
        tape = self.tape
        self._add_step(optimizer)
        if tape is not None:  # one that has just begun records from the next step on
            tape.after_update(optimizer)

    def _add_step(self, optimizer: Optimizer) -> None:
        watched = self._by_id.get(id(optimizer))
        if watched is None or watched.optimizer is not optimizer:
            watched = Watched(len(self.watched), weakref.ref(optimizer), type(optimizer).__name__, self._made.get(optimizer))
            self.watched.append(watched)
            self._by_id[id(optimizer)] = watched
        if self.first_step_at is None:
            self.first_step_at = time.monotonic()
        watched.loss_name = watched.loss_name or getattr(self, "_last_name", "")
        watched.steps += 1
        watched.rounds.append(self.backwards)
        if optimizer is self.hand:
            watched.kind = "updates by hand"
        else:
            self.unstepped = 0
        if self._losses:
            inside = self._losses[self._before :]
            # LBFGS computes the loss several times in a step: the first is that of the weights before it.
            losses = inside[:1] if inside and isinstance(optimizer, torch.optim.LBFGS) else self._losses
            self._last_loss = losses[0] if len(losses) == 1 else torch.stack([one.float() for one in losses]).sum()
            self._losses = []
        if (loss := getattr(self, "_last_loss", None)) is not None:
            watched.add(watched.steps, loss)
        self._on_step(watched)


@contextlib.contextmanager
def _wrapped(holder: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    original = getattr(holder, name)
    setattr(holder, name, wrap(original))
    try:
        yield
    finally:
        setattr(holder, name, original)
