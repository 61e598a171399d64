"""At a plateau: say why, race remedies on copies, go on with the winner where that is wanted; and never stop a training run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from eureka.doctor.diagnose import diagnose
from eureka.errors import RequestError, UnknownNameError
from eureka.files import make_folder, write_whole
from eureka.forks.case import Fork
from eureka.forks.setup import Setup
from eureka.formats import listing
from eureka.formats import step as written
from eureka.group import DIAGNOSE_INSTEAD, group_size, is_first
from eureka.racing.race import Race
from eureka.racing.remedies import choose
from eureka.racing.remedy import applied
from eureka.racing.run import STEPS, race
from eureka.racing.rungs import rungs, total

Mode = Literal["off", "advise", "race", "apply"]
MODES: tuple[str, ...] = get_args(Mode)
LOGGER = logging.getLogger("eureka")
SHARE = 0.5
"""A race takes at most this share of the steps that the run has made, over all its forks."""
MOST = 3
"""Plateaus of a run that are looked at."""
LEAST = 20
"""A race of fewer steps shows nothing."""
LENGTHS = [STEPS >> halved for halved in range(STEPS.bit_length()) if STEPS >> halved >= LEAST]
"""How far a race may go, the longest first."""


@dataclass(frozen=True, kw_only=True)
class RescueRecord:
    """What was found at a plateau, and what was done."""

    step: int
    causes: tuple[str, ...] = ()
    advice: str = ""
    verdict: str = ""
    """what the race has shown; empty if there was none"""
    winner: str = ""
    race_steps: int = 0
    applied: bool = False
    checkpoint: str = ""
    """the file with model and optimiser from before"""
    failed: str = ""
    """why nothing more could be done"""

    @property
    def sentence(self) -> str:
        """All of it, for a log."""
        parts = [f"Plateau at step {self.step:,}: {', '.join(self.causes) or 'not diagnosed'}."]
        parts += [f"{self.advice[:1].upper()}{self.advice[1:]}"] if self.advice else []
        parts += [self.verdict] if self.verdict else []
        parts += [f"Training goes on with {self.winner}; before it: {self.checkpoint}."] if self.applied else []
        return " ".join([*parts, self.failed]).strip()

    def scalars(self) -> dict[str, float]:
        """For loggers that take nothing but numbers."""
        return {"eureka/rescue_race_steps": float(self.race_steps), "eureka/rescue_applied": float(self.applied)}


def as_mode(mode: str) -> str:
    if mode not in MODES:
        raise UnknownNameError("rescue", mode, MODES)
    return mode


class Rescue:
    """What a watcher does at a plateau.

    mode     "advise" diagnoses; "race" also tries remedies on copies; "apply" goes on with the winner, if there is one, and tries
             no new starts
    given    called at a plateau for the run as it is then
    folder   where the checkpoint from before is written; "apply" needs it
    share    of the steps made so far that a race may take, over all its forks; where that is too little, the race waits while
             the plateau lasts
    """

    def __init__(self, mode: str, given: Callable[[], Setup], *, folder: Path | str | None = None, share: float = SHARE) -> None:
        self.mode, self.given, self.share = as_mode(mode), given, share
        self.folder = None if folder is None else Path(folder)
        if self.mode == "apply" and folder is None:
            raise RequestError('rescue="apply" needs a folder for the checkpoint from before.')
        if not self.share > 0:
            raise RequestError(f"share={share:g}: a race takes a share of the steps above 0.")
        self.records: list[RescueRecord] = []
        self.pending: tuple[str, ...] = ()
        """remedies whose race waits for more steps, while the plateau lasts"""

    def at_plateau(self, step: int, since: float | None = None) -> RescueRecord | None:
        """Look at the run, as often as `MOST` plateaus; what fails is said once and ends the rescue, not the run.

        In a group of several processes nothing is examined, and rank 0 says so: the other ranks would wait in a collective, or
        train on with other weights.

        since   the step at which the plateau has begun
        """
        self.pending = ()
        if self.mode == "off" or len(self.records) >= MOST:
            return None
        if (size := group_size()) > 1:
            if is_first():
                start = written(float(step) if since is None else since)
                LOGGER.warning(
                    "The run is on a plateau since step %s, and examining it needs one process, not %d: %s.",
                    *(start, size, DIAGNOSE_INSTEAD),
                )
            return None
        self.records.append(RescueRecord(step=step))
        return self._looked(self._rescue)

    def is_due(self, step: int) -> bool:
        """Whether a race has waited for more steps and the run has made them."""
        waits = self.mode in ("race", "apply") and bool(self.pending) and group_size() == 1
        return waits and self._length(step, self.pending) is not None

    def go_on(self, step: int) -> RescueRecord:
        """Run the race that it was too early for; its plateau lasts."""
        names, self.pending = self.pending, ()
        self.records[-1] = replace(self.records[-1], step=step, verdict="")
        return self._looked(lambda record: self._race(record, self.given(), self._kept(names)))

    def _looked(self, look: Callable[[RescueRecord], RescueRecord]) -> RescueRecord:
        """The last record, after a look at the run."""
        record = self.records[-1]
        try:
            record = look(record)
        except Exception as error:  # a watcher never stops a training run
            self.mode = "off"
            record = replace(record, failed=f"The run cannot be looked into ({error}); its loss is watched.")
        self.records[-1] = record
        LOGGER.warning("%s", record.sentence)  # so that it is seen where nobody has set up logging
        return record

    def _rescue(self, record: RescueRecord) -> RescueRecord:
        given = self.given()
        found = diagnose(given)
        record = replace(record, causes=tuple(one.cause for one in found.findings), advice=found.findings[0].advice)
        if self.mode == "advise":
            return record
        names = self._kept(found.remedies)
        if not names:
            why = "the run is healthy." if found.healthy else f"{found.cause} has to be mended by hand."
            return replace(record, verdict=f"No remedy is raced: {why}")
        return self._race(record, given, names)

    def _race(self, record: RescueRecord, given: Setup, names: tuple[str, ...]) -> RescueRecord:
        steps = self._length(record.step, names)
        if steps is None:
            self.pending = names
            why = f"{self.share:g} of {record.step:,} steps is too little for one"
            due = math.ceil(total(rungs(len(names), LENGTHS[-1])) / self.share)
            return replace(record, verdict=f"No race yet: {why}; if the plateau lasts, it is run at step {due:,}.")
        ran = race(given, remedies=list(names), steps=steps)
        record = replace(record, verdict=ran.summary, winner=ran.winner, race_steps=ran.steps)
        return self._apply(record, ran, given) if self.mode == "apply" and ran.winner != "wait" else record

    def _length(self, step: int, names: tuple[str, ...]) -> int | None:
        """How far a race of these remedies may go at a step; None if it is too early for one."""
        return next((one for one in LENGTHS if total(rungs(len(names), one)) <= self.share * step), None)

    def _kept(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Without new starts where the winner is applied unasked: what a model has learned is not thrown away by a watcher."""
        return names if self.mode != "apply" else tuple(name for name in names if not choose([name])[0].restarts)

    def _apply(self, record: RescueRecord, ran: Race, given: Setup) -> RescueRecord:
        assert self.folder is not None
        assert given.trained_by is not None
        make_folder(self.folder)
        file, content = self.folder / f"before_rescue_{record.step}.pt", BytesIO()
        state = {"step": record.step, "model": given.model.state_dict(), "optimizer": given.trained_by.state_dict()}
        torch.save(state, content)
        write_whole(file, content.getvalue())
        ran.apply()
        return replace(record, applied=True, checkpoint=str(file))

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings."""
        records = [asdict(record) | {"causes": list(record.causes)} for record in self.records]
        return {"records": records, "pending": list(self.pending)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on after a checkpoint was loaded: what lasts of the remedies in force is applied to the new model again."""
        self.records = [RescueRecord(**{**one, "causes": tuple(one["causes"])}) for one in state["records"]]
        self.pending = tuple(state.get("pending", ()))  # a checkpoint of an older version has none
        names = [record.winner for record in self.records if record.applied]
        if names and group_size() > 1:
            if is_first():
                LOGGER.warning(
                    "%s cannot be applied again in a group of several processes; the run goes on without it.", listing(names)
                )
            return
        try:
            for name in names:
                self._apply_again(name)
        except Exception as error:  # a watcher never stops a training run
            LOGGER.warning("%s could not be applied again (%s); the run goes on without it.", listing(names), error)

    def _apply_again(self, name: str) -> None:
        (remedy,) = choose([name])
        if remedy.lasting is not None:
            given = self.given()
            assert given.trained_by is not None
            applied(replace(remedy, apply=remedy.lasting), Fork(given.model, given.trained_by))
