"""Diagnose a model that does not learn: checks in order, findings ranked."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn
from torch.optim import Optimizer

from eureka.curves.readers.curve import Curve, read_curve
from eureka.doctor.attention_state import has_attention
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
    order,
    padding,
    positions,
    precision,
    rate,
    scales,
    sight,
    sign,
    targets,
    tokens_alike,
    units,
    values,
)
from eureka.doctor.exam import LONG, STEPS, Exam
from eureka.doctor.finding import CheckRecord, Diagnosis, Finding
from eureka.errors import EurekaError, RequestError, own_line
from eureka.forks.case import Case, Fork, Loss, Step, kept_random_state, make_case, seeded
from eureka.forks.kept import kept_loop
from eureka.forks.settings_code import settings_code
from eureka.forks.setup import Setup, hand_over
from eureka.forks.trial import kept
from eureka.forks.untouched import Untouched
from eureka.formats import number, percent, plural
from eureka.group import refuse_group, refuse_sharded
from eureka.uncompiled import uncompiled

EXPLAINED = 0.8
"""Checks that train are left out once a finding weighs this much."""
SYMPTOMS = ("dead_units", "rank_collapse", "attention_saturated", "not_a_number")
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
    Check("values", values.check, 1, broken=True),
    Check("loss_form", loss_form.check, 1),
    Check("sign", sign.check, 1),
    Check("targets", targets.check, 8, broken=True),
    Check("sight", sight.check, 8),
    Check("padding", padding.check, 8),
    Check("attention_axis", attention_axis.check, 2),
    Check("norm_mode", norm_mode.check, 20),
    Check("data", data.check, 20),
    Check("order", order.check, 0),
    Check("scales", scales.check, 120),
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


@dataclass(frozen=True)
class Limit:
    """What a diagnosis may cost."""

    seconds: float
    steps: float

    def forbids(self, cost: int, exam: Exam, spent: float) -> str:
        """Return why a check of this cost is not begun any more, or nothing."""
        if spent > self.seconds:
            return f"the budget of {self.seconds:g} s was spent"
        base = vars(exam).get("base")  # before it is measured, the time of a step is not known
        step = base.seconds / max(len(base.losses), 1) if base is not None else 0.0
        if spent + cost * step > self.seconds:
            return "the budget leaves no time for it"
        if spent + cost * step > self.steps * step > 0:
            return "the budget leaves no time for it"
        return ""


def step_limit() -> int:
    """Return how many training steps' time a diagnosis takes at most, about."""
    return sum(check.cost for check in CHECKS)


def diagnose(
    model: nn.Module | Any,
    batches: Iterable[Any] | Any = None,
    *,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    step: Step | None = None,
    log: Any = None,
    budget: float | None = None,
    most_steps: float = math.inf,
    on_check: Callable[[str], None] | None = None,
) -> Diagnosis:
    """Find out why a model does not learn, by measurements and experiments on copies of it.

    Args:
        model: as it is now: fresh, or after some training. It is left bit for bit as it was, and so are the optimiser and all
            random numbers. Or a Trainer of Hugging Face, which brings all the rest; or a Lightning module
        batches: a list or a DataLoader; a few dozen batches are enough. With a Lightning module, its data module or a
            DataLoader
        loss: ``lambda model, batch: …`` returns the loss as training computes it
        optimizer: the one that trains the model
        step: in place of `loss`: ``lambda model, optimizer, batch: …`` does everything that your loop does in a step, and
            returns the loss
        log: the loss so far: a list of numbers, or a file that `eureka detect` can read
        budget: seconds; a check that would probably end later is not begun
        most_steps: the same limit as a number of training steps, whose time the diagnosis may take
        on_check: called with the name of each check before it begins
    """
    refuse_group("eureka.diagnose")
    with kept_random_state(batches), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of copies of the user's model; their own runs have told them
        given = hand_over(model, batches, loss=loss, optimizer=optimizer, step=step, log=log)
        limit = Limit(math.inf if budget is None else budget, most_steps)
        return _diagnose(given, limit, on_check or (lambda name: None))


def _diagnose(given: Setup, limit: Limit, on_check: Callable[[str], None]) -> Diagnosis:
    if isinstance(given.model, nn.Module):  # anything else is refused with the rest of the request
        refuse_sharded(given.model, "eureka.diagnose")
    function = given.loss if given.step is None else given.step
    with kept_random_state(given.batches), kept_loop(function, given.optimizer, given.model), uncompiled():
        case = make_case(
            given.model, given.batches, loss=given.loss, optimizer=given.optimizer, step=given.step, most=STEPS,
            held=given.held, source_rows=given.source_rows,
        )  # fmt: skip
        _first_step(case)
        curve = curve_of(given.log)
        exam = Exam(case, None if curve is None else (curve.steps, curve.values))
        findings, records = _check_all(exam, limit, on_check)
        ranked = sorted(findings, key=lambda one: -one.weight) or [_nothing_found(exam, records)]
        attention = has_attention(exam)
    ranked = [replace(one, code=settings_code(one.code, given)) for one in ranked]
    steps = exam.base.seconds / max(len(exam.base.losses), 1)
    notes = (*given.notes, *case.assumed, *_uncounted(exam, ranked[0]))
    return Diagnosis(findings=tuple(ranked), checks=tuple(records), notes=notes, step_seconds=steps, attention=attention)


def _first_step(case: Case) -> None:
    """A step of the run as it is: it can be made, and it leaves the user's own model alone."""
    untouched = Untouched(Fork(case.model, case.optimizer))
    with seeded(), kept(case):
        try:
            case.train(case.fork(), case.batches[0])
        except Exception as error:
            raise _of_the_users(error) from error
        finally:
            untouched.check()  # before what the loss holds is put back, its own parameters among it


def _check_all(exam: Exam, limit: Limit, on_check: Callable[[str], None]) -> tuple[list[Finding], list[CheckRecord]]:
    findings: list[Finding] = []
    records: list[CheckRecord] = []
    begun = time.perf_counter()
    for check in CHECKS:
        on_check(check.name)
        start, why = time.perf_counter(), ""
        try:
            why = _why_not(check, exam, findings, begun, limit)
            findings += [] if why else check.run(exam)
        except Exception as error:  # one check that fails does not stop the others
            if not {"base", "still"} & vars(exam).keys():  # not even the user's own steps can be made
                raise _of_the_users(error) from error
            lines = str(error).strip().splitlines()  # torch adds pages of its dispatcher's keys
            why = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        records.append(CheckRecord(name=check.name, seconds=time.perf_counter() - start, skipped=why))
    return findings, records


def _of_the_users(error: Exception) -> Exception:
    if isinstance(error, EurekaError):
        return error
    if "Tried to step" in str(error):  # OneCycleLR and the like, in the user's step
        return RequestError(
            f"the schedule in your step ends too soon{own_line(error)}: up to {LONG} steps are tried from here. Give a step"
            f" without scheduler.step(), or a schedule that goes on ({error})."
        )
    return RequestError(f"a training step fails{own_line(error)} with {type(error).__name__}: {error}")


def _why_not(check: Check, exam: Exam, findings: list[Finding], begun: float, limit: Limit) -> str:
    if why := limit.forbids(check.cost, exam, time.perf_counter() - begun):
        return why
    if not check.broken and not exam.finite:
        return "the loss is not a number"
    if (
        check.cost > 10
        and check.name != "movement"
        and any(one.weight >= EXPLAINED and one.cause not in SYMPTOMS for one in findings)
    ):
        return "what was found before explains it"
    return ""


def curve_of(log: Any) -> Curve | None:
    """The loss so far, from a list of numbers or from a file; None if there are not two."""
    if log is None:
        return None
    if isinstance(log, str) or hasattr(log, "__fspath__"):
        return read_curve(log)
    values = np.asarray(log, dtype=float)
    if np.isfinite(values).sum() < 2:
        return None
    steps, count = np.arange(len(values), dtype=float), len(values)
    return Curve(
        file="", metric="loss", step_name="step", steps=steps, values=values, lr=None, points=count, metrics=("loss",)
    )  # fmt: skip


def _uncounted(exam: Exam, first: Finding) -> tuple[str, ...]:
    """A run that may have waited for long is not judged by that if nobody counts its steps."""
    if exam.counted or first.kind != "waiting":
        return ()
    return ("How many steps the run has made is not known, so a long wait is not told from a short one: pass log=….",)


def _nothing_found(exam: Exam, records: list[CheckRecord]) -> Finding:
    """No check has found anything."""
    if not exam.finite or not exam.base.finite:
        return values.unexplained(exam)
    gained, left = exam.progress, sum(bool(record.skipped) for record in records)
    guessing = exam.chance is not None and exam.end > labels.RELATED * exam.chance
    if exam.learning:
        kind, advice = "learning", "go on; diagnose it again when the loss comes to chance." if guessing else "go on."
    elif exam.chance is not None and exam.level < 0.1 * exam.chance:
        kind, advice = "at its floor", "the loss is below a tenth of chance; look at held-out data."
    else:
        among = " by the checks that could be made" if left else ""
        kind, advice = "waiting", f"the signal is alive and no fault was found{among}: wait, or try remedies with `eureka race`."
    moved = f"{'lower' if gained.share >= 0 else 'raise'} it by {percent(abs(gained.share), 2)}"
    told = [f"{_level(exam)}; {len(exam.base.losses)} more steps {moved}."]
    if exam.learning and guessing:
        told.append("To fall to chance it need not look at its inputs, so it is too early to tell whether it learns from them.")
    if exam.plain_chance is not None and exam.chance is None:
        told.append(f"Its level is not judged: the loss is not the {exam.plain_name} alone, nor a multiple of it.")
    if kind == "waiting" and (modulus := _modulus(exam, records)) is not None:
        told.append(f"The labels are a sum of several inputs modulo {modulus}: a long plateau is usual before that is learned.")
    if left:
        told.append(f"{plural(left, 'check')} of {len(records)} could not be made, and would have seen other faults.")
    return Finding(
        cause="healthy",
        sure=0.9 if kind == "learning" and not guessing else 0.6,
        explains=1.0,
        evidence=tuple(told),
        advice=advice,
        kind=kind,
        numbers={"gain": gained.share},
    )


def _modulus(exam: Exam, records: list[CheckRecord]) -> int | None:
    """Of labels that are a modular sum; not asked where the labels could not be checked."""
    if any(record.skipped for record in records if record.name == "labels"):
        return None
    try:
        return exam.once(labels.modulus)
    except Exception:  # a sentence less is no harm
        return None


def _level(exam: Exam) -> str:
    """The loss, beside chance where the two compare."""
    if exam.chance is None:
        return f"Loss {exam.level:.4g}"
    times = f" ({number(exam.multiple)} times the {exam.plain_name})" if exam.multiple and exam.multiple != 1.0 else ""
    return f"Loss {exam.level:.4g}{times}, chance is {exam.chance:.4g}"
