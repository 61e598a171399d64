"""How a run is doing, read from its folder by the process that started it or by any other. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eureka.curves.plateaus import rest_at_end
from eureka.formats import fixed
from eureka.runs import Level, Metrics, Outcome, Run
from eureka.training.leaps import eureka_leap

Phase = Literal["waiting", "starting", "learning", "plateau", "eureka", "interrupted", "ended", "diverged"]
NEAR = 0.03
"""How near to a level's accuracy counts as being at that level."""


@dataclass(frozen=True)
class RunStatus:
    """Where a run is now."""

    step: int
    steps: int
    loss: float | None
    accuracy: float | None
    phase: Phase
    text: str
    """the phase in words: "at the shortcut level (accuracy 0.55, theory 0.552)", "Eureka at step 612" """

    @property
    def ended(self) -> bool:
        return self.phase in ("ended", "diverged") or self.step >= self.steps

    @property
    def live(self) -> bool:
        """Whether a process is at work on it."""
        return self.phase in ("starting", "learning", "plateau", "eureka")


def run_status(run: Run, at_work: bool | None = None) -> RunStatus:
    """What the outcome says of a run that has ended; of another the metrics are read anew.

    at_work   whether a process is at work on the run, for who knows it; else the folder is asked
    """
    steps = run.config.steps
    if run.outcome is not None:
        return _ended(run.outcome, steps)
    metrics = run.folder.metrics()
    live = run.folder.at_work() if at_work is None else at_work
    if not metrics:
        phase: Phase = "starting" if live else "waiting"
        return RunStatus(0, steps, None, None, phase, phase)
    last = metrics[-1]
    phase, text = _phase(metrics, run.folder.levels()) if live else ("interrupted", f"interrupted at step {last.step:,}")
    return RunStatus(last.step, steps, last.validation_loss, last.validation_accuracy, phase, text)


def _ended(outcome: Outcome, steps: int) -> RunStatus:
    phase: Phase = "diverged" if outcome.status == "diverged" else "ended"
    if phase == "diverged":
        text = f"diverged at step {outcome.steps:,}"
    elif outcome.eureka_step is not None:
        text = f"Eureka at step {outcome.eureka_step:,}"
    else:
        text = f"no Eureka-moment in {outcome.steps:,} steps"
    return RunStatus(outcome.steps, steps, outcome.final_loss, outcome.final_accuracy, phase, text)


def _phase(metrics: Sequence[Metrics], levels: Sequence[Level]) -> tuple[Phase, str]:
    leap = eureka_leap(metrics, levels) if levels else None
    if leap:
        return "eureka", f"Eureka at step {leap.step:,}"
    place = _plateau(metrics, levels[:-1])
    return ("plateau", place) if place else ("learning", "learning")


def _plateau(metrics: Sequence[Metrics], levels: Sequence[Level]) -> str | None:
    """Where a run rests, by the one rule for plateaus: at a level that theory knows, or elsewhere; None while the loss moves."""
    rest = rest_at_end(np.array([line.validation_loss for line in metrics]))
    if rest is None:
        return None
    accuracy = float(np.mean([line.validation_accuracy for line in metrics[-rest.count :]]))
    for index, level in enumerate(levels):
        if abs(accuracy - level.accuracy) <= NEAR:
            name = "the shortcut level" if len(levels) == 1 else f"level {index + 1} of {len(levels)}"
            return f"at {name} (accuracy {accuracy:.2f}, theory {fixed(level.accuracy)})"
    return f"on a plateau at loss {fixed(rest.level)}"
