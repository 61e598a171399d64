"""Run a race: forks of the user's run on the same batches, by successive halving, one on the device at a time."""

from __future__ import annotations

import gc
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn
from torch.optim import Optimizer

from eureka.errors import RequestError
from eureka.forks.case import Case, Fork, Loss, Step, copied_hooks, kept_random_state, make_case
from eureka.forks.inputs import seen_inputs
from eureka.forks.kept import kept_loop, schedulers_of
from eureka.forks.parking import Parked, Parking, empty, size_of
from eureka.forks.settings_code import settings_code
from eureka.forks.setup import Setup, hand_over
from eureka.forks.state import KeptState
from eureka.forks.untouched import Untouched
from eureka.formats import listing, number, plural
from eureka.group import refuse_group, refuse_sharded
from eureka.racing.contender import Contender
from eureka.racing.race import WAIT, Prize, Race
from eureka.racing.remedies import choose, larger_rate
from eureka.racing.remedy import Remedy
from eureka.racing.rungs import expected, rungs, stay, total
from eureka.racing.verdict import Verdict, far_ahead, has_leapt, in_words, judge, learned, winner

STEPS = 480
"""How far the last forks go."""
LEAST_STEPS = 20
"""Of fewer steps nothing can be told."""
MEMORY = 0.25
"""Forks are kept in main memory if all of them take no more than this share of what is free."""

OnStep = Callable[[str, int, int], None]


def race(
    model: nn.Module | Any,
    batches: Iterable[Any] | Any = None,
    *,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    step: Step | None = None,
    remedies: Sequence[str | Remedy] | str | None = None,
    steps: int = STEPS,
    seed: int = 0,
    one_copy: bool = False,
    budget: float | None = None,
    most_steps: float = math.inf,
    on_step: OnStep | None = None,
) -> Race:
    """Fork a run into "wait" and one fork for each remedy, train all on the same batches, and say which remedy helps.

    Nothing of the user's is changed: not weights, optimiser, buffers, random numbers, modes, hooks or the order of the data.
    `Race.apply` makes the winner the user's run.

    Args:
        model: the one that is stuck; or a Trainer of Hugging Face, which brings all the rest; or a Lightning module
        batches: a list or a DataLoader, of a Lightning module also its data module; if there are fewer than `steps`, they are
            used again, and it is said
        loss: ``lambda model, batch: …`` returns the loss as training computes it
        optimizer: the one that trains the model
        step: in place of `loss`: ``lambda model, optimizer, batch: …`` does everything that your loop does in a step, and
            returns the loss
        remedies: names, or objects of your own (`eureka.Remedy`); the seven most promising unless given, "all" for the
            catalogue. If steps hardly move the weights, a large multiple of the rate is among the seven, and it is said
        steps: how far the last forks go; the others end earlier, and a leap ends the race at once
        seed: of the random numbers that forks draw; the same in all of them at the same step
        one_copy: keep your own weights off the device while the race runs (on a processor: in a file), so that it needs no
            more memory than training does; they come back bit for bit
        budget: seconds that the race may take, by the time of its first steps; forks go less far then, and it is said
        most_steps: the same limit as a number of steps of all forks together
        on_step: called after each step with the fork's name, the steps taken by all forks, and the most that there can be
    """
    if steps < 2:
        raise RequestError(f"steps={steps}: a race takes at least 2 steps.")
    refuse_group("eureka.race")
    chosen = choose(remedies)
    with ExitStack() as stack:
        stack.enter_context(kept_random_state(batches))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of copies of the user's model; their own run has told them
        given = hand_over(model, batches, loss=loss, optimizer=optimizer, step=step)
        if isinstance(given.model, nn.Module):  # anything else is refused with the rest of the request
            refuse_sharded(given.model, "eureka.race")
        case = make_case(
            given.model, given.batches, loss=given.loss, optimizer=given.optimizer, step=given.step, most=steps
        )  # fmt: skip
        stack.enter_context(kept_loop(case.step or case.loss, case.optimizer, case.model))  # remedies call the model too
        running = _Running(given, case, chosen, steps, seed, one_copy, on_step, stack)
        running.limits = (math.inf if budget is None else budget, most_steps)
        running.run(may_choose=remedies is None)
        return running.result()


class _Running:
    """A race while it runs."""

    def __init__(
        self,
        given: Setup,
        case: Case,
        chosen: Sequence[Remedy],
        steps: int,
        seed: int,
        one_copy: bool,
        on_step: OnStep | None,
        stack: ExitStack,
    ) -> None:
        self.case, self.steps, self.seed, self.on_step = case, steps, seed, on_step
        self.given, self.user = given, Fork(case.model, given.trained_by or case.optimizer)
        self.notes = [*given.notes, *filter(None, [given.forgets]), *case.assumed, *_notes(case, steps)]
        self.wait = Contender(WAIT, "nothing: the run as it is")
        self.remedies = [Contender(remedy.name, remedy.changes, remedy) for remedy in chosen]
        self.parking = self._parking(one_copy)
        self.home: Parked | None = self.parking.park(self.user) if one_copy else None
        if self.home is not None:
            stack.callback(self._come_home, self.home)
        for contender in [self.wait, *self.remedies]:
            stack.callback(contender.end)
        self.limits = (math.inf, math.inf)
        self.inputs: Any = None
        self.step_size = 0.0
        self.begun = time.perf_counter()
        self.taken, self.most = 0, total(rungs(len(self.remedies), steps))

    def _come_home(self, home: Parked) -> None:
        """Bring the user's weights back; what an error refers to may have to be freed first."""
        try:
            home.wake()
        except (RuntimeError, MemoryError):
            gc.collect()
            home.wake()

    def run(self, *, may_choose: bool) -> None:
        """Rung after rung, until one has leapt or is far ahead, waiting is enough, or the steps are used up.

        may_choose  whether what the first step shows may change which remedies are raced
        """
        self.wait.begin(self._fork, self.parking)
        self._first_turn()
        if may_choose:
            self._raise_rate()
        for contender in self.remedies:
            contender.begin(self._fork, self.parking)
        self.notes += _in_part(self.remedies)
        count = sum(one.running for one in self.remedies)
        plan = rungs(count, self._affordable(count))
        self.most = total(plan)
        for rung in plan:
            self._turn(self.wait, rung.until)
            if learned(self.wait.losses):
                return
            left = [one for one in self.remedies if one.running and one.parked is not None]
            ahead = [expected(one.losses, self.wait.losses, calms=one.calms, restarts=one.restarts) for one in left]
            on = stay(ahead, rung.remedies)
            for index, one in enumerate(left):
                if index not in on:
                    one.end()
            for index in on:
                self._turn(left[index], rung.until)
                if left[index].leapt is not None:
                    return
            if any(far_ahead(one) for one in self._verdicts()):
                return

    def _affordable(self, count: int) -> int:
        """How far the last forks can go within the limits; each at least as far as waiting in the first steps of the race."""
        seconds, steps = self.limits
        pace = (time.perf_counter() - self.begun) / max(self.taken, 1)
        room = min(seconds / max(pace, 1e-9), steps)
        if total(rungs(count, self.steps)) <= room:
            return self.steps
        far = next((far for far in range(self.steps, LEAST_STEPS, -10) if total(rungs(count, far)) <= room), LEAST_STEPS)
        self.notes.append(f"Forks go {far} steps far instead of {self.steps}, so that the race keeps within its budget.")
        return far

    def _first_turn(self) -> None:
        """Of the run as it is; its first step shows what the model is called with, how far it moves the weights, and that the
        user's own is left alone."""
        assert self.wait.parked is not None
        fork = self.wait.parked.fork
        with ExitStack() as first:
            seen = first.enter_context(seen_inputs(fork.model))
            first.callback(Untouched(self.user).check)

            def look(contender: Contender) -> bool:
                first.close()
                if len(contender.losses) == 1 and self.home is None:  # else the user's weights are elsewhere
                    self.step_size = _moved(self.case.optimizer, fork.optimizer)
                return self._look(contender)

            until = rungs(0, self.steps)[0].until if self.limits == (math.inf, math.inf) else LEAST_STEPS
            self.wait.turn(self.case, min(until, self.steps), self.parking, self.seed, look)
        self.inputs = seen.as_one()

    def _raise_rate(self) -> None:
        """Where steps are far too small, race a large multiple of the rate first, and not three times the rate."""
        larger = larger_rate(self.step_size)
        if larger is None:
            return
        self.remedies.sort(key=lambda one: one.name != "rate_x3")
        first = self.remedies[0]
        self.notes.append(
            f"A step changes the weights by {number(self.step_size)} of their size, where a thousandth is usual: the rate looks"
            f" far too small, and {larger.name} is raced in place of {first.name}. eureka.diagnose measures which rate is right."
        )
        first.name, first.changes, first.remedy = larger.name, larger.changes, larger

    def _turn(self, contender: Contender, until: int) -> None:
        contender.turn(self.case, until, self.parking, self.seed, self._look)

    def _look(self, contender: Contender) -> bool:
        """After a step of a contender: whether its turn is over."""
        self.taken += 1
        if self.on_step is not None:
            self.on_step(contender.name, self.taken, self.most)
        if contender.remedy is not None and not contender.calms and has_leapt(contender.losses, self.wait.losses):
            contender.leapt = len(contender.losses)
        return contender.leapt is not None

    def result(self) -> Race:
        """Judge all, and keep what the winner has become."""
        verdicts = self._verdicts()
        best = winner(verdicts)
        won = next((one for one in self.remedies if best is not None and one.name == best.name), self.wait)
        return Race(
            verdicts=verdicts,
            summary=in_words(verdicts, self.wait.losses),
            steps=self.taken,
            seconds=time.perf_counter() - self.begun,
            losses={one.name: tuple(one.losses) for one in [self.wait, *self.remedies] if one.losses},
            notes=tuple(self.notes),
            winner=won.name,
            winner_steps=len(won.losses),
            _user=replace(self.user, inputs=self.inputs),
            _winner=won,
            _prize=self._prize(won),
            _adopt=self.given.adopt,
            _own_rates=self.user.optimizer is not self.case.optimizer,
            _line=partial(settings_code, given=self.given),
        )

    def _verdicts(self) -> tuple[Verdict, ...]:
        wait, raced = self.wait.losses, sum(not one.skipped for one in self.remedies)
        return tuple(
            judge(
                one.name,
                one.changes,
                one.losses,
                wait,
                remedies=raced,
                leapt=one.leapt,
                skipped=one.skipped,
                given_up=one.given_up,
            )
            for one in self.remedies
        )

    def _prize(self, won: Contender) -> Prize:
        assert won.parked is not None
        counts = tuple(one.state_dict() for one in won.made.counting) if won.made is not None else ()
        fork = won.parked.wake()
        state = KeptState(fork, self.parking.folder)
        won.parked = self.parking.park(fork)
        return Prize(state, counts, self.parking)

    def _fork(self) -> Fork:
        """A new copy of the user's run."""
        fork = replace(self.case.fork(), inputs=self.inputs)
        if self.home is not None:
            try:
                self.home.wake(fork)
            except BaseException:
                empty(fork)  # the user's own weights need the room
                raise
        return fork

    def _parking(self, one_copy: bool) -> Parking:
        """Where forks wait for their turns, and why there."""
        size, forks = size_of(self.user), len(self.remedies) + 1
        on_processor = all(parameter.device.type == "cpu" for parameter in self.case.model.parameters())
        needed = f"{plural(forks, 'fork')} of {size / 1e6:,.1f} MB"
        if not (one_copy and on_processor) and size * forks <= MEMORY * _free_memory():
            self.notes.append(f"Between their turns the forks are in main memory ({needed}).")
            return Parking()
        made = Parking(files=True)
        why = "one copy was asked for" if one_copy else "main memory has too little room"
        self.notes.append(f"Between their turns the forks are in files in {made.folder} ({needed}; {why}).")
        return made


def _moved(before: Optimizer, after: Optimizer) -> float:
    """How far what is trained has moved, by its size."""
    pairs = [
        (one.detach(), other.detach())
        for old, new in zip(before.param_groups, after.param_groups, strict=True)
        for one, other in zip(old["params"], new["params"], strict=True)
    ]
    size = math.hypot(*(float(one.norm()) for one, _ in pairs))
    return math.hypot(*(float((other - one).norm()) for one, other in pairs)) / size if size else 0.0


def _in_part(contenders: Iterable[Contender]) -> list[str]:
    """What remedies were applied without; each reason once."""
    reasons: dict[str, list[str]] = {}
    for one in contenders:
        if one.made is not None and one.made.without:
            reasons.setdefault(" ".join(one.made.without), []).append(one.name)
    return [f"{listing(names)} {'is' if len(names) == 1 else 'are'} raced in part: {why}" for why, names in reasons.items()]


def _free_memory() -> float:
    """In bytes; what POSIX tells, or 4 GB where it tells nothing."""
    try:
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return 4e9


def _notes(case: Case, steps: int) -> list[str]:
    found = []
    if len(case.batches) < steps:
        few = plural(len(case.batches), "batch", "batches")
        found.append(f"There {'is' if len(case.batches) == 1 else 'are'} {few} for up to {steps} steps; they are used again.")
    if schedulers_of(case.step):
        found.append("The scheduler does not reach the forks: all of them go on at the learning rate of now.")
    kinds: list[Mapping[int, Any]] = [case.optimizer._optimizer_step_pre_hooks, case.optimizer._optimizer_step_post_hooks]
    if any(len(hooks) > len(copied_hooks(hooks)) for hooks in kinds):
        found.append("Hooks on the optimiser are not copied: forks train without them.")
    return found
