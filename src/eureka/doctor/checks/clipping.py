"""Does clipping leave a gradient? What clipping was seen to do, and a trial without it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from eureka.doctor.exam import SHORT, TINY, Exam
from eureka.doctor.finding import Finding
from eureka.forks.case import Fork
from eureka.forks.trial import keep_gradient
from eureka.formats import number, percent

TIGHT = 0.05
"""Clipping that leaves more than this share of the gradient is not tried."""


def check(exam: Exam) -> Iterator[Finding]:
    computed, used = exam.base.total("computed"), exam.base.total("used")
    if exam.well or not exam.base.finite or not 0 < used <= TIGHT * computed < math.inf:
        return
    limits = [limit for _, limit in exam.base.clips]
    found = exam.unlocks(_unclipped, at_once=False)
    if found is None and (exam.step_size > TINY or used > 0.2 * TIGHT * computed):
        return
    how = (
        f"clip_grad_norm_({number(statistics.median(limits))}) leaves"
        if limits
        else "Between backward() and step() there is left"
    )
    tried = f"with the whole gradient the loss falls by {percent(found.share, 1)} in {SHORT} steps" if found else ""
    moved = f"a step changes the weights by {number(exam.step_size)} of their size, where a thousandth is usual"
    yield Finding(
        cause="clip_too_tight",
        sure=0.93 if found else 0.9,
        explains=0.95,
        evidence=(f"{how} {percent(used / computed, 2)} of the gradient's norm; {tried or moved}.",),
        advice="clip at about the usual norm of the gradient, here "
        f"{number(statistics.median([norm for norm, _ in exam.base.clips]) if limits else exam.gradient_norm)}, or not at all.",
        numbers={"left": used / computed},
    )


@contextmanager
def _unclipped(fork: Fork) -> Iterator[None]:
    """The optimiser gets the gradients as backward left them, whatever was done to them since."""
    kept: dict[Tensor, Tensor] = {}
    parameters = [one for one in fork.model.parameters() if one.requires_grad and one.is_leaf]
    handles = [keep_gradient(one, lambda gradient, one=one: kept.__setitem__(one, gradient.clone())) for one in parameters]  # type: ignore[misc]
    original = fork.optimizer.step

    def step(*args: Any, **kwargs: Any) -> Any:
        for parameter, gradient in kept.items():
            parameter.grad = gradient
        return original(*args, **kwargs)

    fork.optimizer.step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        fork.optimizer.step = original  # type: ignore[method-assign]
        for handle in handles:
            handle.remove()
