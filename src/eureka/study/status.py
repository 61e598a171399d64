"""How a run is doing, read from its folder by the process that started it or by any other. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eureka.runs import Level, Metrics, Outcome, Run
from eureka.training.leaps import eureka_leap

Phase = Literal["waiting", "learning", "plateau", "eureka", "ended", "diverged"]
NEAR = 0.03
"""How near to a level's accuracy counts as sitting on its plateau."""
RECENT = 4
"""How many logged lines decide whether a run sits on a plateau."""


@dataclass(frozen=True)
class RunStatus:
    """Where a run is now."""

    step: int
    steps: int
    loss: float | None
    accuracy: float | None
    phase: Phase
    text: str
    """the phase in words: "plateau at 0.62", "Eureka at step 612" """

    @property
    def ended(self) -> bool:
        return self.phase in ("ended", "diverged") or self.step >= self.steps


def run_status(run: Run) -> RunStatus:
    """What the files say; the metrics are read anew."""
    metrics, steps = run.folder.metrics(), run.config.steps
    if not metrics:
        phase: Phase = "diverged" if run.outcome else "waiting"
        return RunStatus(run.outcome.steps if run.outcome else 0, steps, None, None, phase, phase)
    last = metrics[-1]
    phase, text = _phase(metrics, run.folder.levels(), run.outcome)
    return RunStatus(last.step, steps, last.validation_loss, last.validation_accuracy, phase, text)


def _phase(metrics: Sequence[Metrics], levels: Sequence[Level], outcome: Outcome | None) -> tuple[Phase, str]:
    leap = eureka_leap(metrics, levels) if levels else None
    if outcome and outcome.status == "diverged":
        return "diverged", f"diverged at step {outcome.steps}"
    if leap:
        return ("ended" if outcome else "eureka"), f"Eureka at step {leap.step:,}"
    if outcome:
        return "ended", f"no Eureka-moment in {outcome.steps:,} steps"
    if _sits(metrics[-RECENT:], levels[:-1]):
        return "plateau", f"plateau at {metrics[-1].validation_loss:.2f}"
    return "learning", "learning"


def _sits(recent: Sequence[Metrics], plateaus: Sequence[Level]) -> bool:
    accuracy = sum(line.validation_accuracy for line in recent) / len(recent)
    return len(recent) == RECENT and any(abs(accuracy - level.accuracy) <= NEAR for level in plateaus)
