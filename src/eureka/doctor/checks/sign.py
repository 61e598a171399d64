"""Does training lower the loss, or raise it? The sign of what is returned, and of what the optimiser does."""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import number


def check(exam: Exam) -> Iterator[Finding]:
    if exam.multiple is None:
        return
    raised = all(group.get("maximize", False) for group in exam.case.optimizer.param_groups)
    if (exam.multiple < 0) == raised:
        return
    told, advice = (
        (
            "The optimiser was made with maximize=True: it raises the loss, and the answers get worse.",
            "leave maximize=True out.",
        )
        if raised
        else (
            f"The loss is {number(exam.multiple)} times the {exam.plain_name}: the lower it is, the worse are the answers.",
            "turn the sign of the loss.",
        )
    )
    yield Finding(cause="loss_misuse", sure=0.95, explains=0.98, evidence=(told,), advice=advice)
