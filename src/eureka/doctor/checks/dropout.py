"""Does dropout drown the signal? How far gradients of one batch agree, and a trial without it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from eureka.doctor.changes import DROPOUTS, no_dropout
from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.formats import number, percent

LEAST, MOST = 0.4, 0.8
"""Dropout below the first is not tried; below the second it is not blamed unless the trial without it gains."""
AGREE = 0.25
"""Gradients of one batch whose cosine is below this say more about dropout than about the batch."""


def check(exam: Exam) -> Iterator[Finding]:
    strongest = max(_rates(exam.case.model), default=0.0)
    if strongest < LEAST or exam.well:
        return
    cosine = _agreement(exam)
    found = exam.unlocks(no_dropout)
    if found is None and (cosine > AGREE or strongest < MOST):
        return
    tried = f" Without it the loss falls by {percent(found.share, 1)} in {SHORT} steps." if found else ""
    yield Finding(
        cause="dropout_too_large",
        sure=0.93 if found else 0.85,
        explains=0.95,
        evidence=(
            f"With dropout of {number(strongest)} two gradients of the same batch have a cosine of {number(cosine)} or less in a"
            f" quarter of the matrices; without it they are equal.{tried}",
        ),
        advice="lower the dropout; 0 to 0.2 is usual.",
        code=f"for m in model.modules(): [setattr(m, name, min(getattr(m, name), 0.1)) for name in {('p', *DROPOUTS)}"
        " if isinstance(getattr(m, name, None), float)]",
        numbers={"dropout": strongest, "cosine": cosine},
    )


def _agreement(exam: Exam) -> float:
    """The cosine of the gradients of one batch with different units dropped: the mean of three pairs, that of the lowest quarter.

    Only layers before a dropout may suffer; and the whole gradient may be mostly that of the last bias, which says how often
    each label occurs.
    """
    batch = exam.case.batches[0]
    first, second, third = (exam.gradients(batch, seed=seed) for seed in range(3))
    cosines = [
        sum(
            float(torch.cosine_similarity(a[name], b[name], dim=0)) for a, b in ((first, second), (second, third), (first, third))
        )
        / 3
        for name, parameter in exam.case.model.named_parameters()
        if parameter.dim() > 1 and all(name in one for one in (first, second, third))
    ]
    return float(np.quantile(cosines, 0.25)) if cosines else 1.0


def _rates(model: nn.Module) -> list[float]:
    found = [float(module.p) for module in model.modules() if isinstance(module, nn.modules.dropout._DropoutNd)]
    settings = [getattr(module, name, None) for module in model.modules() for name in DROPOUTS]
    return found + [value for value in settings if isinstance(value, float)]
