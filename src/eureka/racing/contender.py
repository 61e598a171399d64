"""A contender: one fork of the user's run with its remedy, its losses so far, and where it waits between its turns."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from eureka.forks.case import Case, Fork
from eureka.forks.kept import kept_loop
from eureka.forks.parking import Parked, Parking, empty
from eureka.racing.remedy import Applied, Change, Remedy, applied


@dataclass
class Contender:
    """A fork; without a remedy it waits."""

    name: str
    changes: str
    remedy: Remedy | None = None
    losses: list[float] = field(default_factory=list)
    """before each step"""
    skipped: str = ""
    """why the remedy could not be applied or trained with"""
    leapt: int | None = None
    """the step at which it was seen to have leapt"""
    in_part: tuple[Change, ...] = ()
    """what was applied of a remedy of which some was left out"""
    made: Applied | None = None
    parked: Parked | None = None

    @property
    def running(self) -> bool:
        return not self.skipped and all(map(math.isfinite, self.losses[-1:]))

    @property
    def given_up(self) -> bool:
        """Whether it has left the race before its end."""
        return bool(self.losses) and self.parked is None

    @property
    def calms(self) -> bool:
        """Whether its remedy only takes noise out of the steps."""
        return getattr(self.remedy, "calms", False)

    @property
    def restarts(self) -> bool:
        """Whether its remedy is a new start."""
        return getattr(self.remedy, "restarts", False)

    def begin(self, make_fork: Callable[[], Fork], parking: Parking) -> None:
        """Make the fork and apply the remedy; one that cannot be applied says why."""
        fork = make_fork()
        if self.remedy is not None:
            try:
                self.made = applied(self.remedy, fork)
                self.in_part = self.made.done if self.made.without else ()
            except Exception as error:  # also a user's own remedy
                self.skipped = told(error)
                empty(fork)
                return
        self.parked = parking.park(fork)

    def turn(self, case: Case, until: int, parking: Parking, seed: int, look: Callable[[Contender], bool]) -> None:
        """Train up to a step, or until a look ends it. Each step draws the same random numbers in every fork.

        What the user's functions hold begins at the user's own in every turn, and is put back after it.
        """
        assert self.parked is not None
        fork = self.parked.wake()
        try:
            with kept_loop(case.step or case.loss, case.optimizer, case.model):
                while len(self.losses) < until and self._step(case, fork, seed) and not look(self):
                    pass
        finally:
            self.parked = parking.park(fork)

    def _step(self, case: Case, fork: Fork, seed: int) -> bool:
        """One step; whether it could be made, and its loss is a number."""
        step = len(self.losses)
        draw_from(seed * 1_000_003 + step)
        try:
            self.losses.append(float(case.train(fork, case.batches[step % len(case.batches)])))
        except Exception as error:
            if self.remedy is None:
                raise
            self.skipped = f"training with it failed: {told(error)}"
        return self.running

    def end(self) -> None:
        """Take back what lasts beyond the fork, and forget the fork."""
        made, parked, self.made, self.parked = self.made, self.parked, None, None
        fork = None if parked is None or made is None else parked.wake()  # a remedy may put weights back
        if made is not None:
            made.undo()
        if fork is not None:
            empty(fork)
        if parked is not None:
            parked.forget()


def draw_from(seed: int) -> None:
    """All random numbers begin here."""
    import numpy as np

    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def told(error: BaseException) -> str:
    """An error as a sentence."""
    from eureka.errors import EurekaError

    text = str(error) if isinstance(error, EurekaError) else f"{type(error).__name__}: {error}"
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return first if first.endswith(".") else f"{first}."
