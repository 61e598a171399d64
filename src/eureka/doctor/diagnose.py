"""Diagnose a model that does not learn: checks in order, findings ranked."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from eureka.doctor.checks import (
    attention,
    attention_axis,
    clipping,
    data,
    decay,
    dropout,
    labels,
    loss_form,
    movement,
    norm_mode,
    padding,
    positions,
    precision,
    rate,
    sight,
    targets,
    tokens_alike,
    units,
)
from eureka.doctor.exam import STEPS, Exam
from eureka.doctor.finding import CheckRecord, Diagnosis, Finding
from eureka.forks.case import Loss, Step, kept_random_state, make_case
from eureka.forks.kept import kept_loop
from eureka.formats import percent

EXPLAINED = 0.8
"""Checks that train are left out once a finding weighs this much."""
SYMPTOMS = ("dead_units", "rank_collapse", "attention_saturated")
"""What a rate that is too large may leave behind: they explain nothing until the rate was looked at."""


@dataclass(frozen=True)
class Check:
    """A check and what it costs, in training steps, at most."""

    name: str
    run: Callable[[Exam], Iterator[Finding]]
    cost: int
    broken: bool = False
    """also if the loss is not a number now"""


CHECKS = (
    Check("movement", movement.check, 2 * STEPS, broken=True),
    Check("loss_form", loss_form.check, 1),
    Check("targets", targets.check, 8),
    Check("sight", sight.check, 8),
    Check("padding", padding.check, 8),
    Check("attention_axis", attention_axis.check, 2),
    Check("norm_mode", norm_mode.check, 20),
    Check("data", data.check, 20),
    Check("precision", precision.check, 0),
    Check("units", units.check, 0),
    Check("clipping", clipping.check, 20),
    Check("decay", decay.check, 20),
    Check("dropout", dropout.check, 20),
    Check("rate", rate.check, 100, broken=True),
    Check("positions", positions.check, 4),
    Check("tokens_alike", tokens_alike.check, 1),
    Check("labels", labels.check, 12),
    Check("attention", attention.check, 40),
)
"""In their order: does anything move, are the targets right, does it see what it must, is the rate effective, and only then: is
attention to blame."""


def diagnose(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    step: Step | None = None,
    log: Any = None,
    budget: float | None = None,
    on_check: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find out why a model does not learn, by measurements and experiments on copies of it.

    model      as it is now: fresh, or after some training. It is left bit for bit as it was, and so are the optimiser and
               all random numbers
    batches    a list or a DataLoader; a few dozen batches are enough
    loss       ``lambda model, batch: …`` returns the loss as training computes it
    optimizer  the one that trains the model
    step       in place of `loss`: ``lambda model, optimizer, batch: …`` does everything that your loop does in a step, and
               returns the loss
    log        the loss so far: a list of numbers, or a file that `eureka detect` can read
    budget     seconds after which no further check begins
    on_check   called with the name of each check before it begins
    """
    with kept_random_state(), kept_loop(step, optimizer), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copies of the user's model; their own runs have told them
        case = make_case(model, batches, loss=loss, optimizer=optimizer, step=step, most=STEPS)
        exam = Exam(case, _curve(log))
        findings: list[Finding] = []
        records: list[CheckRecord] = []
        begun = time.perf_counter()
        for check in CHECKS:
            if on_check is not None:
                on_check(check.name)
            why = _why_not(check, exam, findings, begun, budget)
            start = time.perf_counter()
            if not why:
                try:
                    findings += check.run(exam)
                except Exception as error:  # one check that fails does not stop the others
                    why = f"{type(error).__name__}: {error}"
            records.append(CheckRecord(name=check.name, seconds=time.perf_counter() - start, skipped=why))
        ranked = sorted(findings, key=lambda one: -one.weight) or [_healthy(exam)]
    steps = exam.base.seconds / max(len(exam.base.losses), 1)
    return Diagnosis(findings=tuple(ranked), checks=tuple(records), notes=case.assumed, step_seconds=steps)


def _why_not(check: Check, exam: Exam, findings: list[Finding], begun: float, budget: float | None) -> str:
    if budget is not None and time.perf_counter() - begun > budget:
        return f"the budget of {budget:g} s was spent"
    if not check.broken and not exam.finite:
        return "the loss is not a number"
    if (
        check.cost > 10
        and check.name != "movement"
        and any(one.weight >= EXPLAINED and one.cause not in SYMPTOMS for one in findings)
    ):
        return "what was found before explains it"
    return ""


def _curve(log: Any) -> Any:
    """Steps and values of the loss so far."""
    if log is None:
        return None
    import numpy as np

    if isinstance(log, str) or hasattr(log, "__fspath__"):
        from eureka.curves.readers.curve import read_curve

        curve = read_curve(log)
        return curve.steps, curve.values
    values = np.asarray(log, dtype=float)
    return np.arange(len(values), dtype=float), values


def _healthy(exam: Exam) -> Finding:
    """Nothing was found."""
    gained = exam.progress
    if exam.learning:
        kind, advice = "learning", "go on."
    elif exam.chance is not None and exam.level < 0.1 * exam.chance:
        kind, advice = "at its floor", "the loss is near zero; look at held-out data."
    else:
        kind, advice = "waiting", "the signal is alive and no fault was found: wait, or try remedies with `eureka race`."
    level = f"loss {exam.level:.4g}" + (f", chance is {exam.chance:.4g}" if exam.chance else "")
    return Finding(
        cause="healthy",
        sure=0.9 if kind == "learning" else 0.6,
        explains=1.0,
        evidence=(f"{kind}: {level}; {len(exam.base.losses)} more steps lower it by {percent(gained.share, 2)}.",),
        advice=advice,
        numbers={"gain": gained.share},
    )
