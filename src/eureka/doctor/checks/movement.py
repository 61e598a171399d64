"""Does anything move? Parameters without gradient, without an optimiser, with one that is gone before the step, or piles up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from torch import nn

from eureka.doctor.changes import fresh, frozen_kept
from eureka.doctor.checks.units import dead_layers
from eureka.doctor.exam import LEARNING, LONG, Exam
from eureka.doctor.finding import Finding
from eureka.forks.case import Fork, stay
from eureka.forks.trial import Watched, gain, try_steps
from eureka.formats import few, number, percent, plural

TIMES, GROWN = 4, 3.0
"""Steps on one batch, and how many times as large a gradient is at the last of them if all are added up, or nearly."""
ABOVE = 1.1
"""A loss above chance by this factor is clearly worse than guessing."""
LEAST = 0.02
"""Parameters with less than this share of the gradient are not worth a word."""


def check(exam: Exam) -> Iterator[Finding]:
    yield from _without_gradient(exam)
    yield from _outside(exam)
    yield from _nobodys(exam)
    yield from _piling_up(exam)


def _without_gradient(exam: Exam) -> Iterator[Finding]:
    base, model = exam.base, exam.case.model
    named = dict(model.named_parameters())
    if not named:
        return
    if not base.steps_taken:
        yield _nothing("The step never calls optimizer.step(): no weight changes.", "call optimizer.step() after backward()", 1.0)
        return
    if not exam.finite:
        return  # what is not a number has no gradient
    computed, used = base.total("computed"), base.total("used")
    if computed > 0 and used <= 1e-12 * computed:
        yield _nothing(
            f"backward() leaves a gradient of norm {number(exam.gradient_norm)}, and when the optimiser steps it is"
            f" {number(used / base.steps_taken**0.5)}.",
            "call zero_grad() before backward(), not between backward() and step()",
            1.0,
        )
        return
    total = sum(one.numel() for one in named.values())
    mute = {name: one for name, one in base.parameters.items() if one.computed == 0 and one.used == 0}
    share = sum(one.elements for one in mute.values()) / total
    if not any(base.parameters[name].moved for name in named) and computed == 0:
        yield _nothing(
            "No parameter gets a gradient: the loss does not depend on any of them, or they are frozen.",
            "look for detach(), no_grad(), .data, .item() or requires_grad_(False) between the parameters and the loss",
            1.0,
        )
        return
    frozen = [name for name, one in named.items() if not one.requires_grad]
    cut = [name for name in mute if named[name].requires_grad]
    cut_share = sum(named[name].numel() for name in cut) / total
    if cut_share > 0.05 and not exam.well and not exam.once(dead_layers):
        yield _nothing(
            f"{percent(cut_share)} of the parameters ask for a gradient and get exactly none ({few(cut)}).",
            "look for detach(), no_grad() or .data between them and the loss, and for layers that are never used",
            min(1.0, 0.5 + cut_share / 2),
        )
    elif share > 0.5 and frozen and not exam.well and (exam.chance is None or exam.level > 0.5 * exam.chance):
        yield from _frozen(exam, frozen, sum(named[name].numel() for name in frozen) / total)


def _frozen(exam: Exam, frozen: list[str], share: float) -> Iterator[Finding]:
    """Frozen weights are to blame if the others learn no more with them than with frozen weights that are drawn anew.

    A loss that falls from above chance is that of sure answers to something else: what those weights are worth is seen later.
    """
    if exam.learning and exam.chance is not None and exam.level > ABOVE * exam.chance:
        return
    kept, drawn = exam.trial(frozen_kept(fresh), LONG), exam.trial(fresh, LONG)
    better = gain(kept, drawn)
    if better.clear(LEARNING):
        return  # they hold what was learned before
    yield _nothing(
        f"{percent(share)} of the parameters are frozen (requires_grad is False: {few(frozen)}), and are no help: the"
        f" others reach a loss of {kept.losses[-1]:.4g} with them in {LONG} steps, and of {drawn.losses[-1]:.4g} with frozen"
        " weights that are drawn anew.",
        "unfreeze them with requires_grad_(True), or load the trained weights that should be there",
        share,
    )


def _nothing(evidence: str, advice: str, explains: float) -> Finding:
    return Finding(cause="no_gradient", sure=0.97, explains=explains, evidence=(evidence,), advice=f"{advice}.")


def _outside(exam: Exam) -> Iterator[Finding]:
    """Parameters that get a gradient and are in no group of the optimiser."""
    known = {id(one) for group in exam.case.optimizer.param_groups for one in group["params"]}
    outside = {
        name: exam.base.parameters[name]
        for name, one in exam.case.model.named_parameters()
        if one.requires_grad and id(one) not in known and name not in exam.case.held and exam.base.parameters[name].computed > 0
    }
    if not outside:
        return
    all_computed = sum(one.computed for one in exam.base.parameters.values())
    share = (_computed(outside) / all_computed) ** 0.5 if all_computed else 0.0
    if share < LEAST:
        return
    yield Finding(
        cause="not_in_optimizer",
        sure=0.97 if share > 0.2 or not exam.well else 0.7,
        explains=max(share, 0.5),
        evidence=(
            f"{few(sorted(outside))} get {percent(share)} of the gradient's norm and no update"
            ": they are in no parameter group of the optimiser.",
        ),
        advice="give all parameters to the optimiser, or add them as a group.",
        code="known = {id(p) for group in optimizer.param_groups for p in group['params']};"
        " optimizer.add_param_group({'params': [p for p in model.parameters() if id(p) not in known]})",
        numbers={"share": share},
    )


def _nobodys(exam: Exam) -> Iterator[Finding]:
    """Weights that take part and belong neither to the model's parameters nor to the optimiser."""
    fork = exam.glass
    known = {id(one) for one in fork.model.parameters()}
    known |= {id(one) for group in fork.optimizer.param_groups for one in group["params"]}
    strangers = [one for one in exam.view.leaves if id(one) not in known and isinstance(one, nn.Parameter)]
    if not strangers:
        return
    count, registered = sum(one.numel() for one in strangers), sum(one.numel() for one in fork.model.parameters())
    yield Finding(
        cause="not_in_optimizer",
        sure=0.96,
        explains=max(0.7, count / (count + registered)),
        evidence=(
            f"{plural(len(strangers), 'weight tensor')} with {count:,} elements take part in the forward pass and are not among"
            " model.parameters(): no optimiser that was given those can move them.",
        ),
        advice="hold modules in nn.ModuleList or nn.ModuleDict, not in a list or dict.",
        code="self.blocks = nn.ModuleList(blocks)",
        numbers={"elements": float(count)},
    )


def _piling_up(exam: Exam) -> Iterator[Finding]:
    """Whether a step finds the gradients of those before it: with one batch and weights that stay, they grow evenly."""
    if exam.case.step is None or not exam.finite or exam.base.steps_taken < len(exam.base.losses):
        return  # who steps more seldom adds gradients up on purpose
    seen: list[float] = []

    def change(fork: Fork) -> None:
        def keep(closure: Any = None, **_: Any) -> Any:
            result = stay(closure)
            seen.append(
                sum(float(one.grad.float().square().sum()) for one in fork.model.parameters() if one.grad is not None) ** 0.5
            )
            return result

        fork.optimizer.step = keep  # type: ignore[method-assign]

    try_steps(exam.case, [exam.case.batches[0]] * TIMES, change)
    if len(seen) < TIMES or not 0 < GROWN * seen[0] < seen[-1] < math.inf or sorted(seen) != seen:
        return
    yield Finding(
        cause="gradients_kept",
        sure=0.95,
        explains=0.6 if exam.well else 0.95,
        evidence=(
            f"On one batch and with weights that stay, the gradient is {number(seen[0])} at the first step and"
            f" {number(seen[-1])} at step {TIMES}: each step adds its own to those of all before it.",
        ),
        advice="call optimizer.zero_grad() once before every backward().",
        code="optimizer.zero_grad()",
        numbers={"grown": seen[-1] / seen[0]},
    )


def _computed(parameters: dict[str, Watched]) -> float:
    return sum(one.computed for one in parameters.values())
