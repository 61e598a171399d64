"""Monitor a training run in any loop: plateaus and Eureka-moments in the loss, attention, schedules."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn

from eureka.curves.following import BROKEN
from eureka.curves.moment import Plateau
from eureka.curves.online import Event, OnlineDetector
from eureka.errors import EurekaError, RequestError
from eureka.forks.setup import Setup
from eureka.formats import step as written
from eureka.group import is_first
from eureka.integrations.rescue import LOGGER, SHARE, Rescue, RescueRecord, as_mode
from eureka.patching.patch import Patched
from eureka.probes.attention import AttentionProbe
from eureka.runs import ProbeRecord

Scalars = dict[str, float]


class Monitor:
    """Feed it the loss of every step.

        with Monitor(model, log=writer) as monitor:
            for step, batch in enumerate(batches):
                ...  # forward, backward, optimiser.step()
                monitor.update(step, loss.item())

    Args:
        model: whose attention is probed
        every: steps between two probes of the attention; None for none
        patched: a patch whose schedule is saved and restored with the monitor
        log: called with (scalars, step) for every record of the probe and every event
        on_event: called with every event: a plateau has begun, a Eureka-moment has ended, the loss is no number any more
        per_layer: log every measure of every layer; otherwise their means
        rescue: what to do at a plateau: "off"; "advise" says why it is stuck; "race" also tries remedies on copies; "apply"
            goes on with the winner. It needs `given`. In a group of several processes nothing is examined or changed: rank 0
            says at a plateau what to call instead
        given: called at a plateau; returns what `eureka.diagnose` takes, as a dict: model, batches, loss or step, optimizer
        folder: where "apply" writes the checkpoint from before
        share: of the steps made so far that a race may take, over all its forks; a plateau that comes too early for one is
            raced later, if it lasts

    It never stops a training run: what cannot be measured is said once, as a warning of the logger "eureka", and the loss is
    watched on. An `on_event` that fails is told there too.

    >>> import torch
    >>> model = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> with Monitor(model, every=None) as monitor:
    ...     found = [monitor.update(step, 2.0 if step < 500 else 0.1) for step in range(1000)]
    >>> [event.name for event in monitor.events]
    ['plateau_entered', 'eureka', 'plateau_entered']
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int | None = 50,
        patched: Patched | None = None,
        log: Callable[[Scalars, int], None] | None = None,
        on_event: Callable[[Event], None] | None = None,
        per_layer: bool = False,
        rescue: str = "off",
        given: Callable[[], Setup | Mapping[str, Any]] | None = None,
        folder: Path | str | None = None,
        share: float = SHARE,
    ) -> None:
        self.detector = OnlineDetector()
        self.events: list[Event] = []
        self._broken: list[float] = []  # the steps of the last losses, as long as they are no numbers
        self.patched, self._log, self._on_event = patched, log or (lambda scalars, step: None), on_event
        self._per_layer = per_layer
        if as_mode(rescue) != "off" and given is None:
            raise RequestError(f'rescue="{rescue}" needs given=…, a function that returns model, batches, loss and optimizer.')
        self.rescue = Rescue(rescue, _as_given(given), folder=folder, share=share)
        self.probe = self._probe_of(model, every)

    def _probe_of(self, model: nn.Module, every: int | None) -> AttentionProbe | None:
        """None for a model whose attention cannot be measured."""
        if every is None:
            return None
        try:
            return AttentionProbe(model, every, on_record=self._probed, on_failure=self._unprobed)
        except EurekaError as error:
            if every < 1:
                raise
            self._unprobed(error)
            return None

    @property
    def records(self) -> list[ProbeRecord]:
        """The records of the probe so far."""
        return [] if self.probe is None else self.probe.records

    def update(self, step: int, loss: float) -> Event | None:
        """Take the loss of a step; the event that it completes, if any."""
        event = self.detector.update(step, loss) or self._no_number(step, loss)
        if event is not None:
            self.events.append(event)
            self._tell(event_scalars(event), step)
            if event.name == "plateau_entered":
                if is_first() and self.records and (told := self.records[-1].sentence):
                    LOGGER.info("%s", told)
                self._rescue(partial(self.rescue.at_plateau, since=event.plateau.start), step)
            self._call(event)
        elif self.detector.resting and self.rescue.is_due(step):
            self._rescue(self.rescue.go_on, step)
        if not self.detector.resting:
            self.rescue.pending = ()
        return event

    def _no_number(self, step: int, loss: float) -> Event | None:
        """An event once so many losses in a row are no numbers as `eureka detect --watch` waits for."""
        if math.isfinite(loss):
            self._broken = []
        elif len(self._broken) < BROKEN:
            self._broken.append(float(step))
            if len(self._broken) == BROKEN:
                first = self._broken[0]
                LOGGER.warning("loss: no number (nan or inf) from step %s on", written(first))
                return Event(name="no_number", step=float(step), plateau=Plateau(start=first, end=float(step), level=math.nan))
        return None

    def _call(self, event: Event) -> None:
        """Hand an event to the user's function; if that fails, training goes on."""
        try:
            if self._on_event is not None:
                self._on_event(event)
        except Exception as error:
            LOGGER.warning("on_event failed at %s (%s: %s).", event.name, type(error).__name__, error)

    def _rescue(self, look: Callable[[int], RescueRecord | None], step: int) -> None:
        """Look at the run with nothing attached to its model meanwhile."""
        if self.probe is not None:
            self.probe.pause()
        record = look(step)
        if self.probe is not None:
            self.probe.resume()
        if record is not None:
            self._tell(record.scalars(), step)

    def _tell(self, scalars: Scalars, step: int) -> None:
        """Log; a logger that fails is not called again, and training goes on."""
        try:
            self._log(scalars, step)
        except Exception as error:
            self._log = lambda scalars, step: None
            LOGGER.warning("The logger failed (%s: %s); eureka logs no more numbers.", type(error).__name__, error)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, for any kind of checkpoint; without the events and records so far."""
        return {
            "detector": self.detector.state_dict(),
            "probe": None if self.probe is None else self.probe.state_dict(),
            "patched": None if self.patched is None else self.patched.state_dict(),
            "rescue": self.rescue.state_dict(),
            "broken": list(self._broken),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.detector.load_state_dict(state["detector"])
        if self.probe is not None and state["probe"] is not None:
            self.probe.load_state_dict(state["probe"])
        if self.patched is not None and state["patched"] is not None:
            self.patched.load_state_dict(state["patched"])
        if "rescue" in state:  # a checkpoint of an older version has none
            self.rescue.load_state_dict(state["rescue"])
        self._broken = list(state.get("broken", ()))

    def close(self) -> None:
        """Detach the probe from the model; the patch stays."""
        if self.probe is not None:
            self.probe.close()

    def _probed(self, record: ProbeRecord) -> None:
        self._tell(record.scalars(per_layer=self._per_layer), record.step)

    def _unprobed(self, error: Exception) -> None:
        """Say once that attention is not measured; the loss is watched on."""
        self.probe = None
        LOGGER.warning("Attention is not measured, the loss is watched: %s", error)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _as_given(given: Callable[[], Setup | Mapping[str, Any]] | None) -> Callable[[], Setup]:
    def call() -> Setup:
        assert given is not None
        made = given()
        return made if isinstance(made, Setup) else Setup(**made)

    return call


def event_scalars(event: Event) -> Scalars:
    """An event as numbers, for loggers that take nothing else."""
    if event.name == "no_number":
        return {"eureka/no_number": event.plateau.start}
    if event.moment is None:
        return {"eureka/plateau_start": event.plateau.start, "eureka/plateau_level": event.plateau.level}
    moment = event.moment
    return {"eureka/onset": moment.onset, "eureka/end": moment.end, "eureka/before": moment.before, "eureka/after": moment.after}
