"""Does dropout drown the signal? A trial without it."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from eureka.doctor.changes import no_dropout
from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.formats import number, percent

LEAST = 0.4
"""Dropout below this is not tried."""


def check(exam: Exam) -> Iterator[Finding]:
    strongest = max((rate for rate in _rates(exam.case.model)), default=0.0)
    if strongest < LEAST or exam.learning:
        return
    found = exam.unlocks(no_dropout)
    if found is None:
        return
    yield Finding(
        cause="dropout_too_large",
        sure=0.92,
        explains=0.95,
        evidence=(
            f"Dropout of {number(strongest)}: without it the loss falls by {percent(found.share, 1)} in {SHORT} steps, with it by"
            f" {percent(max(exam.progress.share, 0.0), 1)}.",
        ),
        advice="lower the dropout; 0 to 0.2 is usual.",
        code="for m in model.modules(): m.p = 0.1 if isinstance(m, torch.nn.Dropout) else getattr(m, 'p', None)",
        numbers={"dropout": strongest, "gain": found.share},
    )


def _rates(model: nn.Module) -> list[float]:
    found = [float(module.p) for module in model.modules() if isinstance(module, nn.modules.dropout._DropoutNd)]
    for module in model.modules():
        found += [
            value
            for name in ("dropout", "attention_dropout", "dropout_p")
            if isinstance(value := getattr(module, name, None), float)
        ]
    return found
