"""Does weight decay undo what is learned? What it takes from the weights in a step, and a trial without it."""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.changes import fresh, no_decay
from eureka.doctor.exam import LONG, SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.forks.trial import Gain
from eureka.formats import number, percent

PULL = 0.2
"""Decay below this share of the weights' movement is not tried."""
MOSTLY = 0.5
"""Decay that is more than this share of it drives the weights."""
ALL = 0.9
"""Decay that is more than this share of what Adam normalises leaves nothing for the loss to say."""
FORGETTING = 0.02
"""Decay that takes this share of the weights at every step leaves nothing of what was learned fifty steps ago."""

AGAIN = " Then begin again: these weights are worn away, and only from fresh ones was it seen to help."
"""What is added to the advice where going without it does not help from here."""
USUAL = 0.1
"""A decay that is usual. If it takes much of the weights, the rate is at fault, unless going without it helps."""


def check(exam: Exam) -> Iterator[Finding]:
    decay, taken = _strongest(exam)
    if exam.well or not decay:
        return
    pull = _pull(exam, decay, taken)
    if pull < PULL and taken < FORGETTING:
        return
    count, found = _without(exam, pull, taken)
    worn = not taken and pull > ALL and exam.guessing
    if found is None and (taken < FORGETTING or decay <= USUAL) and not worn:  # a usual decay takes that much at a high rate
        return
    whence = " from fresh weights" if count == LONG else ""
    tried = f" Without it the loss falls by {percent(found.share, 1)} in {count} steps{whence}." if found else ""
    share = (
        f"takes {percent(taken, 2)} of the weights at every step" if taken else f"is {percent(pull)} of what the optimiser sees"
    )
    yield Finding(
        cause="weight_decay_too_large",
        sure=0.93 if found else 0.85,
        explains=0.96,
        evidence=(
            f"Weight decay of {number(decay)} {share}; the weights are {number(_shrunk(exam))} of the size of fresh ones.{tried}",
        ),
        advice="lower the weight decay; 0.01 to 0.1 is usual with AdamW." + (AGAIN if found and whence else ""),
        code="for group in optimizer.param_groups: group['weight_decay'] ="
        f" min(group['weight_decay'], {min(0.01, 0.1 * decay):g})",
        numbers={"weight_decay": decay, "taken": taken},
    )


def _without(exam: Exam, pull: float, taken: float) -> tuple[int, Gain | None]:
    """From here, and from fresh weights where those of now have been worn away."""
    found = exam.unlocks(no_decay, at_once=False)
    if found is not None or (pull < MOSTLY if not taken else taken < FORGETTING):
        return SHORT, found
    return LONG, exam.unlocks(no_decay, at_once=False, anew=True, count=LONG)


def _strongest(exam: Exam) -> tuple[float, float]:
    """The greatest weight decay, and the share of the weights that it takes at a step."""
    strongest = max(exam.case.optimizer.param_groups, key=lambda group: float(group.get("weight_decay", 0.0)))
    decay = float(strongest.get("weight_decay", 0.0))
    coupled = type(exam.case.optimizer).__name__ in ("Adam", "RMSprop", "Adagrad")  # there it is part of what is normalised
    return decay, 0.0 if coupled else float(strongest["lr"]) * decay


def _pull(exam: Exam, decay: float, taken: float) -> float:
    """What decay does to the weights in a step, by all that happens to them."""
    weight, moved, used = (exam.base.total(what) for what in ("weight", "moved", "used"))
    if taken:
        return taken * weight / moved if moved else 0.0
    return decay * weight / (decay * weight + used) if used else 0.0


def _shrunk(exam: Exam) -> float:
    """The size of the weights by that of fresh ones."""
    fork = exam.case.fork()
    fresh(fork)
    new = sum(float(one.detach().float().square().sum()) for one in fork.model.parameters()) ** 0.5
    now = sum(float(one.detach().float().square().sum()) for one in exam.case.model.parameters()) ** 0.5
    return now / new if new else 0.0
