"""A script or loop that is looked at while it runs: when it is asked, taped, proven and examined."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, Protocol

from torch import nn
from torch.optim import SGD, Optimizer

from eureka.capture.effects import noticed_effects
from eureka.capture.fork import RATES, Forked, fork_arms, warning, why_not
from eureka.capture.lines import Line
from eureka.capture.program import ReplayError, TapedStep
from eureka.capture.prove import CopyStage, Proof, TapedTraining, programs, prove
from eureka.capture.ranks import Ranks, RanksError
from eureka.capture.source import source_rows
from eureka.capture.subject import Subject, bare, held_beside, refuse_kind, size_in_bytes
from eureka.capture.tape import Tape
from eureka.capture.watch import Watch, Watched
from eureka.errors import EurekaError, WorkError
from eureka.forks.joined import Joined
from eureka.forks.rates import warmed_up
from eureka.forks.setup import Setup
from eureka.formats import plural
from eureka.group import examining_alone, group_size
from eureka.random_state import kept_random_state

TAPED_STEPS = 32
"""Steps that are taped once it is asked."""
LATEST_STEP, LATEST_SECONDS = 2_000, 600.0
"""When a loss that has come to no plateau is looked at all the same."""
NEW_OPTIMIZER_STEPS = 3
"""Steps of an optimiser that began while others were taped, after which it is taped with them."""
SETTLED = 20
"""Steps after which every optimiser of the script is taken to have stepped."""
NONFINITE_STEPS = 3
"""Losses in a row that are no number before the run is looked at."""
FREE_MEMORY_SHARE = 0.8
WINDOW_STEPS = 4
"""Steps that are kept while nobody asks, so that a run which ends can still be examined."""
WINDOW_TIME_SHARE, WINDOW_MEMORY_SHARE = 0.02, 0.25
"""What keeping them may take of the time of training and of the free memory."""
WINDOW_SECONDS = 0.3
"""What the first window is taken to cost besides its copies."""
COPIED_PER_SECOND = 1e9
BY_HAND_EXACT = 1e-3
"""What a rate may leave unexplained of an update by hand: rounding."""


class CaptureError(WorkError):
    """The run cannot be captured; the message says why and what to do."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A run that was taped and proven."""

    setup: Setup
    proof: Proof
    steps: int
    """taped ones"""
    at_step: int
    """of the chosen optimiser, when taping ended"""
    forms: int
    model_line: Line | None
    backward_line: Line | None
    optimizer_line: Line | None
    optimizers: tuple[str, ...]
    """a sentence on each optimiser, the chosen one first"""
    examined: int
    """how many of them, the first ones"""
    notes: tuple[str, ...]
    reason: str
    """why it was captured at this step"""
    step_seconds: float
    """the time of one replayed step"""

    def about(self, title: str) -> list[str]:
        """Return what was captured, and where in the script, in sentences."""
        places = [("the model is called", self.model_line), ("backward", self.backward_line)]
        where = ", ".join(f"{what} at {line}" for what, line in places if line is not None)
        lines = [f"{title}, taped up to step {self.at_step:,}: {self.reason}."]
        chosen, others = self.optimizers[: self.examined], self.optimizers[self.examined :]
        together = "Examined together, optimisers " if len(chosen) > 1 else "Optimiser "
        lines.append(together + " and ".join(chosen) + (f"; {where}." if where else "."))
        lines += [f"Not examined: optimiser {other}; what it trains is held as it is." for other in others]
        forms = "" if self.forms == 1 else f", of {self.forms} forms"
        exact = "every loss and all weights" if self.proof.step_exact and self.proof.weights_compared else "every loss"
        lines.append(f"{plural(self.steps, 'step')} taped{forms}; replayed on copies, {exact} came out with the same bits.")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Return what was captured as a JSON value."""
        return {
            "step": self.at_step,
            "reason": self.reason,
            "taped_steps": self.steps,
            "forms": self.forms,
            "loss_exact": self.proof.loss_exact,
            "step_exact": self.proof.step_exact,
            "model_line": None if self.model_line is None else str(self.model_line),
            "backward_line": None if self.backward_line is None else str(self.backward_line),
            "optimizer_line": None if self.optimizer_line is None else str(self.optimizer_line),
            "optimizers": list(self.optimizers),
        }


class Refused(Protocol):
    """Called where a run cannot be captured."""

    def __call__(self, sentence: str, *, goes_on: bool) -> None:
        """Take the reason, and whether the run goes on whatever is wanted: it was refused at its first step."""


@dataclass
class When:
    """When a run is asked: at a step, after some seconds, or at a plateau."""

    step: int | None = None
    seconds: float | None = None

    def is_step(self, watched: Watched) -> str:
        """Return why now, as far as every process of a group knows it by itself; or nothing."""
        return f"step {self.step:,} was asked for" if self.step is not None and watched.steps >= self.step else ""

    def has_come(self, watched: Watched, first_step_at: float) -> str:
        """Return why now, or nothing."""
        if watched.nonfinite >= NONFINITE_STEPS:
            return "the loss is no number"
        since = time.monotonic() - first_step_at
        if self.step is not None:
            return self.is_step(watched)
        if self.seconds is not None:
            return f"{since:.0f} s have passed" if since >= self.seconds else ""
        if watched.event is not None and watched.event.name == "plateau_entered":
            return f"the loss has stopped falling at {watched.event.plateau.level:.4g}"
        if watched.steps >= LATEST_STEP:
            return f"{LATEST_STEP:,} steps have been made"
        return f"{LATEST_SECONDS / 60:.0f} minutes have passed" if since >= LATEST_SECONDS else ""


class Session:
    """Watches this process's training; once asked, tapes the next steps, proves them, and calls `examine`.

    Args:
        when: when it is asked, besides by `ask`
        examine: called between two steps with what was captured
        refused: called with a sentence where the run cannot be captured
        steps: how many are taped
        optimizer: the number of the optimiser to look at, from 1; the one with most parameters by default
        forked: called with what forks of the process came to; if it is given, they are made in the place of a tape
        watch_on: go on to take the losses down after the run was examined
    """

    def __init__(
        self,
        when: When,
        examine: Callable[[Captured], None],
        refused: Refused,
        *,
        steps: int = TAPED_STEPS,
        optimizer: int | None = None,
        forked: Callable[[Forked], None] | None = None,
        watch_on: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.when, self.examine, self.refused, self.steps, self.wanted = when, examine, refused, steps, optimizer
        self.say = say or (lambda text: None)
        self.forked, self.watch_on = forked, watch_on
        self.watch = Watch(self._on_step)
        self.asked = False
        self.done = False
        self.examined = False
        """whether the run was captured and examined, here or on the first rank"""
        self.kept = ""
        """why the last steps are not kept, or nothing if they are"""
        self.tape: Tape | None = None
        self.copies: CopyStage | None = None
        self._main: Watched | None = None
        self._refused_kind = False
        self._reason = self._pending = ""
        self._foreign = 0
        """steps of an optimiser that is not taped, while it is taped"""
        self._window: _Window | None = None
        self._in_window = False
        self._window_costs: list[float] = []
        self._window_began = 0.0
        self._wanted_steps = steps
        self._effects: list[str] = []
        self._ranks: Ranks | None = None
        self._failed: tuple[int, str] | None = None
        """at which step the other ranks learn what is wrong here, and what it is"""

    def _refuse_compiled_step(self, name: str) -> None:
        if not self.done:
            self.done = True
            self.refused(
                f"this run cannot be captured: {name} is compiled and makes the whole step, in which nothing can be seen; compile"
                " the model instead, torch.compile(model). It goes on as it is.",
                goes_on=True,
            )

    def start(self) -> None:
        self.watch.on_compiled_step = self._refuse_compiled_step
        self.watch.start()

    def stop(self) -> None:
        """Look no further. Hooks stay until the loop has ended, as optimisers must not lose them while theirs run."""
        self.done = True
        if self.tape is not None:
            self.tape.stop()
            self.tape = self.watch.tape = None
        self.watch.off = True

    def end(self) -> None:
        """The loop has ended: examine what was taped, if that has not been done."""
        if self.done:
            return self.stop()
        tape, start = self.tape, self.copies
        self.stop()
        if tape is not None and (not tape.steps or self._in_window):
            tape = None
        if tape is None and self._window is not None:
            tape, start, self._main = self._window
            self._reason = "the loop has ended"
        if tape is not None and start is not None:
            self.copies = start
            self._finish(tape, "", went_on=True)
        return None

    def ask(self) -> None:
        """Tape from the next step on."""
        self.asked = True

    @property
    def main(self) -> Watched | None:
        """The optimiser that is looked at."""
        if self.wanted is not None:
            return self.watch.watched[self.wanted - 1] if self.wanted <= len(self.watch.watched) else None
        return self.watch.busiest

    @property
    def curve(self) -> list[tuple[int, float]]:
        """The loss of each step so far."""
        main = self._main or self.main
        return [] if main is None else list(main.curve)

    # Between two steps

    def _on_step(self, watched: Watched) -> None:
        if self.done:
            return
        if self.tape is not None:
            self._look_beside(self.tape, watched)
            return
        try:
            self._look(watched)
        except Exception as error:  # whatever is wrong here must not end the user's run
            self._refuse(_first_line(error))

    def _look_beside(self, tape: Tape, watched: Watched) -> None:
        """A script that makes new optimisers while it is taped is taped anew: the old ones may never step again."""
        if any(one is watched.optimizer for one in tape.optimizers) or self._ranks is not None:
            return
        self._foreign += 1
        if self._foreign >= NEW_OPTIMIZER_STEPS:
            self._foreign, in_window = 0, self._in_window
            self._drop_tape()
            if not in_window:
                self.say(f"step {watched.steps:,} of a new optimiser: the steps that were taped before are dropped.")
            self._main = None

    def _look(self, watched: Watched) -> None:
        """Decide after a step whether the next ones are taped."""
        if watched.steps == 1 and not self._refused_kind:
            optimizer = watched.optimizer
            weights = [] if optimizer is None else [one for group in optimizer.param_groups for one in group["params"]]
            distributed = {"deepspeed", "megatron", "torch.distributed.fsdp"} & sys.modules.keys()
            modules = Subject(weights).root.modules() if distributed else ()  # it takes time to find them
            if why := refuse_kind(modules, weights):
                self._refused_kind = self.done = True
                self.refused(f"this run cannot be captured: {why} It goes on as it is.", goes_on=True)
                return None
        if self.wanted is not None and watched.steps >= SETTLED and self.wanted > len(self.watch.watched):
            count, known = plural(len(self.watch.watched), "optimiser"), "; ".join(map(describe, self.watch.watched))
            self._refuse(f"optimiser {self.wanted} is wanted, and the script steps {count} ({known}).")
            return None
        main = self.main
        if main is None:
            return None
        if main is watched and not self._pending and self._failed is None:
            self._pending = self._why_now(watched)
        last = self.watch.partners(main)[-1]
        if watched is not last:  # a step of the loop ends with the last optimiser that steps after one backward
            return None
        if self._failed is not None:  # here; the other ranks tape, and learn of it when they have
            if watched.steps >= self._failed[0]:
                self._finish(None, self._failed[1], went_on=False)
            return None
        watched = main
        if not self._pending:
            if self._ranks is None and self._window_is_due(watched):
                self._begin_window(watched)
            return None
        self._reason = self._pending
        if self.forked is not None:
            return self._fork(watched, self.forked)
        self.say(f"step {watched.steps:,}: {self._reason}; the next {plural(self.steps, 'step')} are taped.")
        return self._begin(watched)

    def _fork(self, main: Watched, report: Callable[[Forked], None]) -> None:
        self.done = True
        why = "a group of processes cannot be forked." if self._ranks is not None else why_not()
        if why:
            return self._refuse(why)
        self.say(f"step {main.steps:,}: {self._reason}; the script's loop goes on in {1 + len(RATES)} forks. {warning()}")
        with kept_random_state():
            forked = fork_arms(self.watch, main)
        if forked is None:
            return None  # this is a fork
        self.examined = True
        return report(forked)

    def _why_now(self, watched: Watched) -> str:
        """Return why the next steps are to be taped, or nothing."""
        if self._ranks is None and group_size() > 1:
            self._ranks = Ranks()
            self.kept = "the last steps are kept in runs of one process only"

        def reason() -> str:
            assert self.watch.first_step_at is not None
            return "you asked" if self.asked else self.when.has_come(watched, self.watch.first_step_at)

        return reason() if self._ranks is None else self.when.is_step(watched) or self._ranks.decide(watched.steps, reason)

    def _begin(self, main: Watched) -> None:
        try:
            self.tape = self._recording(main, FREE_MEMORY_SHARE)
        except Exception as error:  # whatever is wrong here must not end the user's run
            self._drop_tape()
            if self._ranks is None:
                self._refuse(_first_line(error))
            else:
                self._failed = main.steps + self.steps, _first_line(error)

    def _window_is_due(self, main: Watched) -> bool:
        """Whether the next steps can be kept in so little time that nobody notices."""
        assert self.watch.first_step_at is not None
        trained = time.monotonic() - self.watch.first_step_at
        if self.kept or trained * WINDOW_TIME_SHARE < WINDOW_SECONDS + sum(self._window_costs):
            return False
        step = trained / max(main.steps, 1)
        copies = 16 * main.elements / COPIED_PER_SECOND  # weights, their gradients, two states of the optimiser
        expected = self._window_costs[-1] if self._window_costs else WINDOW_SECONDS + step + copies
        return trained * WINDOW_TIME_SHARE >= expected + sum(self._window_costs)

    def _begin_window(self, main: Watched) -> None:
        begun = time.perf_counter()
        try:
            self.tape = self._recording(main, WINDOW_MEMORY_SHARE)
        except Exception as error:
            self.kept = f"its last steps cannot be kept: {_first_line(error)}"
            self._drop_tape()
            return
        self._in_window, self._window_began = True, time.perf_counter()
        self._window_costs.append(self._window_began - begun)

    def _end_window(self, tape: Tape) -> None:
        assert self.watch.first_step_at is not None
        assert self._main is not None
        taken, steps = time.perf_counter() - self._window_began, len(tape.steps)
        usual = (time.monotonic() - self.watch.first_step_at) / max(self._main.steps, 1)
        begun = time.perf_counter()
        start = self.copies
        self._drop_tape()
        if start is not None and not tape.problem:
            self._window = _Window(tape, start, self._main)
        self._window_costs[-1] += max(taken - steps * usual, 0.0) + time.perf_counter() - begun

    def _drop_tape(self) -> None:
        if self.tape is not None:
            self.tape.stop()
        self.tape = self.watch.tape = self.copies = None
        self._in_window = False

    def _recording(self, main: Watched, memory_share: float) -> Tape:
        """Copy what is trained, and record from the next step on."""
        self._main = main
        watched = [one for one in self.watch.watched if one.optimizer is not None]
        optimizers = [one.optimizer for one in watched if one.optimizer is not None]
        self._numbers = [optimizers.index(one.optimizer) for one in self.watch.partners(main)]  # type: ignore[arg-type]
        subject = Subject(one for optimizer in optimizers for group in optimizer.param_groups for one in group["params"])
        if why := refuse_kind(subject.root.modules(), subject.root.parameters()):
            raise CaptureError(why)
        needed = size_in_bytes(subject.root, optimizers)
        if needed > memory_share * free_memory():
            raise CaptureError(
                f"a copy of the model and its optimiser needs {needed / 1e9:.1f} GB, and {free_memory() / 1e9:.1f} GB are free."
            )
        self.copies = CopyStage(subject, optimizers)
        ends = None if main.optimizer is self.watch.hand else optimizers[self._numbers[-1]]
        tape = self.watch.tape = Tape(subject, optimizers, ends, self._on_taped)
        tape.start()
        return tape

    def _on_taped(self) -> None:
        tape = self.tape
        assert tape is not None
        if self._in_window:
            if self.asked or tape.problem or len(tape.steps) >= WINDOW_STEPS:
                self._end_window(tape)
            return
        if len(tape.steps) == 1 and self._ranks is None:
            self._fit_memory(tape.steps[0])
        if len(tape.steps) < self._wanted_steps and not (tape.problem and self._ranks is None):
            return
        tape.stop()
        self.tape = self.watch.tape = None
        self._finish(tape, "", went_on=False)

    def _fit_memory(self, step: TapedStep) -> None:
        """Tape fewer steps if so many batches would not fit."""
        room = int(FREE_MEMORY_SHARE * free_memory() / max(step.bytes, 1))
        if room < self._wanted_steps:
            self._wanted_steps = max(room, 2)
            self.say(
                f"the batches of a step take {step.bytes / 1e9:.1f} GB and {free_memory() / 1e9:.1f} GB are free:"
                f" {plural(self._wanted_steps, 'step')} are taped instead of {self.steps}."
            )

    def _finish(self, tape: Tape | None, problem: str, *, went_on: bool) -> None:
        """Prove the tape and examine the run; in a group all ranks come here after the same step.

        Args:
            tape: what was taped; None where it could not be
            problem: why not
            went_on: whether the run has made steps since the last taped one, so that its weights do not compare
        """
        with self.watch.paused(), kept_random_state(), self._kept_beside(tape), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of copies; the script's own run has told them
            proof, seconds = None, 0.0
            try:
                problem = self._agreed(problem or self._problem_of(tape))
                if not problem:
                    try:
                        assert tape is not None
                        proof, seconds = self._proof(tape, went_on)
                        problem = self._wrong(proof)
                    except Exception as error:  # the other ranks wait to hear of it
                        problem = _first_line(error)
                    problem = self._agreed(problem)
            except RanksError as error:
                problem = str(error)
            self.copies = self._window = None
            if problem or tape is None or proof is None:
                self._refuse(problem)
            elif self._ranks is None:
                self._examine(tape, proof, seconds)
            else:
                self._examine_in_turn(self._ranks, tape, proof, seconds)

    @contextlib.contextmanager
    def _kept_beside(self, tape: Tape | None) -> Iterator[None]:
        """Afterwards, what forward passes hold besides weights, such as counters and generators, is as it was."""
        held = None if tape is None else held_beside(tape.subject, tape.optimizers)
        try:
            yield
        finally:
            if held is not None:
                held.put_back()

    def _agreed(self, problem: str) -> str:
        return problem if self._ranks is None else self._ranks.agree(problem)

    def _examine(self, tape: Tape, proof: Proof, seconds: float) -> None:
        try:
            captured = self._setup(tape, proof, seconds)
        except Exception as error:  # whatever is wrong here must not end the user's run
            return self._refuse(_first_line(error))
        self.done = self.examined = True
        self._watch_no_more()
        return self.examine(captured)

    def _examine_in_turn(self, ranks: Ranks, tape: Tape, proof: Proof, seconds: float) -> None:
        """Examine on rank 0 while the others wait; then all go on, or all stop."""
        self.done = True
        if ranks.is_first:
            with ranks.others_wait() as tell, examining_alone():
                try:
                    return self._examine(tape, proof, seconds)
                except SystemExit as stop:
                    tell(f"stop {stop.code}")
                    raise
        try:
            verdict, _, code = ranks.wait().partition(" ")
        except RanksError as error:
            return self._refuse(str(error))
        self.examined = True
        self._watch_no_more()
        if verdict == "stop":
            raise SystemExit(int(code))
        return None

    def _watch_no_more(self) -> None:
        if not self.watch_on:
            self.watch.finish()

    def _refuse(self, problem: str) -> None:
        self._drop_tape()
        self.done = True
        self._watch_no_more()
        self.refused(f"this run cannot be captured: {problem}", goes_on=False)

    def _problem_of(self, tape: Tape | None) -> str:
        if tape is None or self.copies is None:
            return "nothing was taped"
        if tape.problem:
            return f"step {len(tape.steps)} of the tape cannot be recorded, as {tape.problem}."
        if not any(step.backwards for step in tape.steps):
            return "no backward was seen in the taped steps, so there is no loss to examine."
        return ""

    def _proof(self, tape: Tape, went_on: bool) -> tuple[Proof, float]:
        """Replay the tape; return what that has shown, and the seconds of a step."""
        subject, optimizers = tape.subject, tape.optimizers
        assert self.copies is not None
        begun = time.perf_counter()
        try:
            with noticed_effects() as self._effects:
                proof = prove(tape.steps, self.copies, subject, optimizers, went_on=went_on)
        except ReplayError as error:
            raise CaptureError(f"its steps cannot be replayed, as {error}.") from error
        return proof, (time.perf_counter() - begun) / len(tape.steps)

    def _wrong(self, proof: Proof) -> str:
        if proof.loss_exact:
            return ""
        return (
            f"in {proof.wrong_losses} of {plural(proof.steps, 'taped step')} the replayed loss differs from the script's"
            f" ({proof.first_wrong}), so nothing can be said about it."
        )

    def _setup(self, tape: Tape, proof: Proof, seconds: float) -> Captured:
        by_hand = next((step.by_hand for step in tape.steps if step.by_hand), "")
        main, subject, optimizers = self._main, tape.subject, tape.optimizers
        assert main is not None
        numbers = self._chosen(tape)
        trained = [one for number in numbers for group in optimizers[number].param_groups for one in group["params"]]
        inside = {id(one) for one in trained}
        everything = programs(tape.steps, subject, subject.root, numbers, optimizers)
        called = [call.target for _, program in everything for call in program.calls if isinstance(call.target, nn.Module)]
        called = [one for one in called if any(id(p) in inside for p in bare(one).parameters())]
        path = subject.smallest(trained, called)
        step = TapedTraining(subject, path)
        steps = programs(tape.steps, subject, step.model, numbers, optimizers)
        own, notes = self._own_optimizer(tape, numbers)
        warm, notes = (own, notes) if len(numbers) > 1 or notes else warmed_up(own)
        written = "" if tape.rates else _overwritten(tape)
        changed = f"{by_hand[0].upper()}{by_hand[1:]}; experiments leave that out." if by_hand else ""
        notes = (*notes, *filter(None, [proof.note, written, changed, *self._effects]))
        if not proof.step_exact and not by_hand:
            notes = (
                *notes,
                f"Losses are replayed with the same bits, steps are not: {proof.differing} differs after the last one.",
            )
        curve = main.curve
        chosen = [optimizers[number] for number in numbers]
        together = [one for one in self.watch.watched if any(one.optimizer is each for each in chosen)]
        others = {id(one) for optimizer in optimizers for group in optimizer.param_groups for one in group["params"]} - inside
        held = frozenset(name for name, one in step.model.named_parameters() if id(one) in others)
        setup = Setup(
            model=step.model,
            batches=[program.batch(one) for one, program in steps],
            step=step,
            optimizer=warm,
            log=[loss for _, loss in curve] if len(curve) > 1 else None,
            notes=notes,
            own_optimizer=None if warm is own else own,
            held=held,
            source_rows=source_rows([*tape.steps[0].data.values()]),
        )
        return Captured(
            setup=setup,
            proof=proof,
            steps=len(tape.steps),
            at_step=main.steps,
            forms=len({one.form for one in tape.steps}),
            model_line=tape.model_line,
            backward_line=tape.backward_line,
            optimizer_line=main.made_at,
            optimizers=tuple(map(describe, [*together, *(one for one in self.watch.watched if one not in together)])),
            examined=len(together),
            notes=notes,
            reason=self._reason,
            step_seconds=seconds,
        )

    def _own_optimizer(self, tape: Tape, numbers: list[int]) -> tuple[Optimizer, tuple[str, ...]]:
        """Return what trains the model in experiments, and what was read or assumed of it."""
        own = tape.optimizers[numbers[0]]
        if own is self.watch.hand:
            weights = [one for group in own.param_groups for one in group["params"]]
            rate, left = median(rate for rate, _ in tape.rates[1:]), max(left for _, left in tape.rates[1:])
            rest = "" if left < BY_HAND_EXACT else f", which leaves up to {left:.0%} of it unexplained (momentum, decay?)"
            note = f"The script updates its weights itself: as SGD at {rate:.3g} would, a rate read off their change{rest}."
            return SGD(weights, lr=rate), (note,)
        if len(numbers) > 1:
            return Joined(*(tape.optimizers[number] for number in numbers)), ()
        return own, ()

    def _chosen(self, tape: Tape) -> list[int]:
        """The optimisers that are examined together: those that train one called model after the same backward."""
        main = self._main
        assert main is not None
        own = tape.optimizers.index(main.optimizer)  # type: ignore[arg-type]
        if len(self._numbers) == 1:
            return [own]
        trained = [{id(one) for group in tape.optimizers[n].param_groups for one in group["params"]} for n in self._numbers]
        for call in (
            one for step in tape.steps for one in step.all_actions() if isinstance(getattr(one, "target", None), nn.Module)
        ):
            inside = {id(one) for one in bare(call.target).parameters()}
            if all(one & inside for one in trained):
                return self._numbers
        return [own]


class _Window(NamedTuple):
    """Steps that were taped while nobody asked, with what they began from."""

    tape: Tape
    start: CopyStage
    main: Watched


def _first_line(error: Exception) -> str:
    text = (str(error) if isinstance(error, EurekaError) else f"{type(error).__name__}: {error}").strip()
    return text.splitlines()[0] if text else type(error).__name__


def _overwritten(tape: Tape) -> str:
    if not any(step.overwritten for step in tape.steps):
        return ""
    return "The script also writes weights besides its optimiser; experiments leave that out."


def describe(watched: Watched) -> str:
    """Return a sentence on an optimiser: its class, parameters, loss and steps."""
    where = "" if watched.made_at is None else f" ({watched.made_at})"
    loss = f", steps after {watched.loss_name}.backward()" if watched.loss_name else ""
    return f"{watched.number + 1}: {watched.kind}{where}, {watched.elements:,} parameters{loss}, {plural(watched.steps, 'step')}"


def free_memory() -> float:
    """Return the free main memory in bytes; 4 GB where the system does not tell."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 4e9
