"""Does each fault stop learning, and does the same run learn without it?"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.faults.setup import Plan
from benchmarks.faults.training import train

LEARNED = 0.6
"""Share of what can be learned that counts as learning."""
SPOILED = 0.5
"""With its fault a run learns at most this share of what it learns without."""


@dataclass(frozen=True)
class Verified:
    """How much of the right question was learned with the fault and without it; a healthy run has no control."""

    name: str
    cause: str
    kind: str
    steps: int
    learned: float
    control: float | None

    @property
    def holds(self) -> bool:
        if self.control is None:
            return self.learned >= LEARNED
        return self.control >= LEARNED and self.learned <= SPOILED * self.control


class Verifier:
    """Plans with the same base share a control."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.controls: dict[str, float] = {}

    def verify(self, plan: Plan) -> Verified:
        learned = self._learned(plan, healthy=False)
        control = None if plan.cause == "healthy" else self._control(plan)
        return Verified(plan.name, plan.cause, plan.kind, plan.length, learned, control)

    def _control(self, plan: Plan) -> float:
        key = f"{plan.base.name} {plan.control} {plan.length}"
        if key not in self.controls:
            self.controls[key] = self._learned(plan, healthy=True)
        return self.controls[key]

    def _learned(self, plan: Plan, healthy: bool) -> float:
        setup = plan.setup(self.seed, healthy)
        train(setup, plan.length, self.seed)
        return setup.score(setup.model)
