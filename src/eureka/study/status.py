"""How a run is doing, read from its folder: by the process that started it or by anyone else. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eureka.runs import Record, RunFolder
from eureka.training.leaps import Point, eureka_moment

Phase = Literal["waiting", "learning", "plateau", "eureka", "ended", "diverged"]
NEAR = 0.03
"""How near to a level's accuracy counts as sitting on its plateau."""


@dataclass(frozen=True)
class Level:
    """A level of the task, as ``task.json`` has it."""

    knows: str
    loss: float
    accuracy: float


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


def run_status(folder: RunFolder) -> RunStatus:
    """What the files say."""
    config, result, metrics = folder.config() or {}, folder.result(), folder.metrics()
    steps = config["training"]["steps"]
    if not metrics:
        phase: Phase = "diverged" if result else "waiting"
        return RunStatus(result["steps"] if result else 0, steps, None, None, phase, phase)
    last = metrics[-1]
    phase, text = _phase(metrics, [Level(**level) for level in folder.levels()], result)
    return RunStatus(last["step"], steps, last["validation_loss"], last["validation_accuracy"], phase, text)


def _phase(metrics: Sequence[Record], levels: Sequence[Level], result: Record | None) -> tuple[Phase, str]:
    points = [Point(r["step"], r["validation_loss"], r["validation_accuracy"]) for r in metrics]
    moment = eureka_moment(points, levels) if levels else None
    if result and result["status"] == "diverged":
        return "diverged", f"diverged at step {result['steps']}"
    if moment:
        return ("ended" if result else "eureka"), f"Eureka at step {moment.step:,}"
    if result:
        return "ended", f"no Eureka-moment in {result['steps']:,} steps"
    recent = [point.accuracy for point in points[-4:]]
    if len(recent) == 4 and any(abs(sum(recent) / 4 - level.accuracy) <= NEAR for level in levels[:-1]):
        return "plateau", f"plateau at {points[-1].loss:.2f}"
    return "learning", "learning"
