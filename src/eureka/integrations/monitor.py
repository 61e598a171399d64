"""Monitor a training run in any loop: plateaus and Eureka-moments in the loss, attention, schedules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from torch import nn

from eureka.curves.online import Event, OnlineDetector
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

    model      whose attention is probed
    every      steps between two probes of the attention; None for none
    patched    a patch whose schedule is saved and restored with the monitor
    log        called with (scalars, step) for every record of the probe and every event
    on_event   called with every event: a plateau has begun, a Eureka-moment has ended

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
    ) -> None:
        self.detector = OnlineDetector()
        self.events: list[Event] = []
        self.patched, self._log, self._on_event = patched, log or (lambda scalars, step: None), on_event
        self.probe = None if every is None else AttentionProbe(model, every, on_record=self._probed)

    @property
    def records(self) -> list[ProbeRecord]:
        """The records of the probe so far."""
        return [] if self.probe is None else self.probe.records

    def update(self, step: int, loss: float) -> Event | None:
        """Take the loss of a step; the event that it completes, if any."""
        event = self.detector.update(step, loss)
        if event is not None:
            self.events.append(event)
            self._log(event_scalars(event), step)
            if self._on_event is not None:
                self._on_event(event)
        return event

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and strings, for any kind of checkpoint; without the events and records so far."""
        return {
            "detector": self.detector.state_dict(),
            "probe": None if self.probe is None else self.probe.state_dict(),
            "patched": None if self.patched is None else self.patched.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.detector.load_state_dict(state["detector"])
        if self.probe is not None and state["probe"] is not None:
            self.probe.load_state_dict(state["probe"])
        if self.patched is not None and state["patched"] is not None:
            self.patched.load_state_dict(state["patched"])

    def close(self) -> None:
        """Detach the probe from the model; the patch stays."""
        if self.probe is not None:
            self.probe.close()

    def _probed(self, record: ProbeRecord) -> None:
        self._log(record.scalars(), record.step)

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def event_scalars(event: Event) -> Scalars:
    """An event as numbers, for loggers that take nothing else."""
    if event.moment is None:
        return {"eureka/plateau_start": event.plateau.start, "eureka/plateau_level": event.plateau.level}
    moment = event.moment
    return {"eureka/onset": moment.onset, "eureka/end": moment.end, "eureka/before": moment.before, "eureka/after": moment.after}
