"""Are inputs and targets of a size that a model can work with? Each is looked at, and training is tried with it scaled."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.changes import both, fresh, standard
from eureka.doctor.checks.positions import drowned_by_inputs
from eureka.doctor.exam import LONG, STEPS, Exam, mean
from eureka.doctor.finding import Finding
from eureka.doctor.sizes import USUAL, float_inputs, is_usual, rms
from eureka.forks.case import Fork
from eureka.forks.trial import Change, gain, try_steps
from eureka.formats import number, percent

LOWER = 0.9
"""Targets that are scaled help if the loss then ends below this share of what it is."""


def check(exam: Exam) -> Iterator[Finding]:
    found = list(_inputs(exam))
    yield from found or _targets(exam)  # what is said of inputs speaks of the targets too


def _inputs(exam: Exam) -> Iterator[Finding]:
    main = float_inputs(exam)
    if main is None or exam.well or is_usual(main):
        return
    size = rms(main)
    batches, drowned = exam.batches(LONG), exam.once(drowned_by_inputs)
    scaled = gain(try_steps(exam.case, batches, _scaled(exam)), try_steps(exam.case, batches, _scaled(exam), still=True))
    helps = scaled.clear(0.03) and scaled.share > 3 * max(exam.progress.share, 0.0)
    if not helps and not drowned:
        return
    told = [f"Inputs have a root mean square of {number(size)} and a mean of {number(float(main.mean()))}."]
    if helps:
        told.append(
            f"Scaled to mean 0 and spread 1 the loss falls by {percent(scaled.share, 1)} in {LONG} steps, as they are by"
            f" {percent(max(exam.progress.share, 0.0), 1)}."
        )
    if drowned:
        told.append("They drown the positions, which are clear beside inputs that are scaled.")
    yield Finding(
        cause="inputs_unscaled",
        sure=0.92,
        explains=0.93,
        evidence=tuple(told),
        advice="normalise the inputs" + (", and the targets" if _unusual_targets(exam) else "") + ".",
        code="x = (x - x.mean()) / x.std()",
        numbers={"rms": size, "gain": scaled.share},
    )


def _targets(exam: Exam) -> Iterator[Finding]:
    """A squared error whose outputs have far to go: they begin near 0, and a step moves them by little."""
    scale = _unusual_targets(exam)
    if scale is None or exam.chance is None or exam.well or exam.learning or not exam.base.finite:
        return
    centre, spread = scale
    tried = try_steps(exam.case, exam.batches(LONG), both(fresh, in_units(centre, spread)))
    if not tried.finite or (end := mean(tried.losses[-8:])) >= LOWER * exam.end:
        return
    ahead = percent(max(exam.progress.share, 0.0), 2)
    yield Finding(
        cause="targets_unscaled",
        sure=0.92,
        explains=0.93,
        evidence=(
            f"Targets have a mean of {number(centre)} and a spread of {number(spread)}. The loss is {exam.level:.4g}, where"
            f" always giving their mean has {exam.chance:.4g}, and {STEPS} more steps lower it by {ahead}.",
            f"With targets of mean 0 and spread 1, fresh weights come to what is a loss of {end:.4g} here in {LONG} steps.",
        ),
        advice="normalise the targets in training, and turn the outputs back into their units afterwards; then begin again.",
        code="y = (y - y_train.mean()) / y_train.std()",
        numbers={"mean": centre, "spread": spread},
    )


def _unusual_targets(exam: Exam) -> tuple[float, float] | None:
    """The mean and the spread of the targets of a squared error, if they are far from what a fresh model gives."""
    scale = exam.target_scale
    return None if scale is None or (USUAL[0] <= scale[1] <= USUAL[1] and abs(scale[0]) <= USUAL[1]) else scale


def _scaled(exam: Exam) -> Change:
    """The model's float inputs with mean 0 and spread 1; and its outputs in units of the targets, where those are unusual too."""
    scale = _unusual_targets(exam)

    def change(fork: Fork) -> None:
        fork.model.register_forward_pre_hook(lambda _, args, kwargs: tree_map(standard, (args, kwargs)), with_kwargs=True)
        if scale is not None:
            fork.model.register_forward_hook(lambda _, __, output: tree_map(lambda one: one * scale[1] + scale[0], output))

    return change


def in_units(centre: float, spread: float) -> Change:
    """The outputs count in the spread of the targets, from their mean; gradients are as if the targets had been normalised."""

    def turned(one: object) -> object:
        if not isinstance(one, Tensor) or not one.is_floating_point():
            return one
        output = one * spread + centre
        if output.requires_grad:
            output.register_hook(lambda gradient: gradient / spread**2)  # type: ignore[no-untyped-call]
        return output

    def change(fork: Fork) -> None:
        fork.model.register_forward_hook(lambda _, __, output: tree_map(turned, output))

    return change
