"""Does weight decay undo what is learned? A trial without it."""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.changes import no_decay
from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.formats import number, percent

PULL = 0.2
"""Decay below this share of the weights' movement is not tried."""


def check(exam: Exam) -> Iterator[Finding]:
    decay, pull = _strongest(exam)
    if exam.learning or pull < PULL:
        return
    found = exam.unlocks(no_decay, at_once=False) or (exam.unlocks(no_decay, anew=True) if pull > 2 * PULL else None)
    if found is None:
        return
    yield Finding(
        cause="weight_decay_too_large",
        sure=0.92,
        explains=0.95,
        evidence=(
            f"Weight decay of {number(decay)} makes {percent(min(pull, 1.0), 0)} of the weights' movement; without it the loss falls by"
            f" {percent(found.share, 1)} in {SHORT} steps, with it by {percent(max(exam.progress.share, 0.0), 1)}.",
        ),
        advice="lower the weight decay; 0.01 to 0.1 is usual with AdamW.",
        code="for group in optimizer.param_groups: group['weight_decay'] = 0.01",
        numbers={"weight_decay": decay, "gain": found.share},
    )


def _strongest(exam: Exam) -> tuple[float, float]:
    """The greatest weight decay, and what decay does to the weights in a step by all that happens to them."""
    groups = exam.case.optimizer.param_groups
    strongest = max(groups, key=lambda group: float(group.get("weight_decay", 0.0)))
    decay = float(strongest.get("weight_decay", 0.0))
    weight, moved = exam.base.total("weight"), exam.base.total("moved")
    decoupled = type(exam.case.optimizer).__name__ not in ("Adam", "SGD", "RMSprop", "Adagrad")
    if decoupled or not decay:
        return decay, float(strongest["lr"]) * decay * weight / moved if moved else 0.0
    used = exam.base.total("used")
    return decay, decay * weight / (decay * weight + used) if used else 0.0
