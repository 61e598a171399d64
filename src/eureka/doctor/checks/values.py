"""Is the loss a number? If not: which batch, and whether the weights, the inputs, the labels or a module make it so."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from eureka.doctor.exam import STEPS, Exam
from eureka.doctor.finding import Finding
from eureka.doctor.frequencies import CLASSIFIERS
from eureka.doctor.view import View, float_tensors
from eureka.formats import few, plural

LATER = "A step on such a loss makes every weight nan, and every loss after it."
WEIGHTS = (
    "go back to weights from before, for they stay nan; then look for the step that made them so: a rate that is too large, a"
    " batch that is not finite, a gradient that is not."
)
DATA = "look for empty fields, logarithms of 0 and divisions by a spread of 0 in how this is read; leave such rows out."
MADE = (
    "look there for a division by 0, a logarithm or root of 0, a softmax over a row that is masked as a whole, or values beyond"
    " what the number format holds."
)


def check(exam: Exam) -> Iterator[Finding]:
    if not exam.finite:
        yield from _broken(exam)
    elif not exam.base.finite:
        yield from _by_gradient(exam)


def unexplained(exam: Exam) -> Finding:
    """The next steps end without a number, and no check has found why."""
    return _finding(
        (f"The loss is {_named(exam.base.losses[-1])} after {plural(len(exam.base.losses) - 1, 'step')} from here.",),
        "look at the gradients of that step with torch.autograd.set_detect_anomaly(True), and at the batch that it is made on.",
        sure=0.8,
    )


def _broken(exam: Exam) -> Iterator[Finding]:
    """The weights as they are give a loss that is no number."""
    place, value = len(exam.still.losses) - 1, _named(exam.still.losses[-1])
    batch = exam.batches(STEPS)[place]
    where = f"The loss is {value}" + (f" at batch {place + 1}, and a number before" if place else " from the first batch on")
    weights = _bad_weights(exam.case.model)
    if weights is not None:
        yield _finding((f"{where}: {weights}.",), WEIGHTS, explains=0.85)  # a rate may have done it, and is looked at next
        return
    maker = _Maker()
    view = exam.observe(maker.keep, batch, whole=False)
    data = _bad_data(batch, view)
    if data is not None:
        yield _finding((f"{where}: {data}.", LATER), DATA)
    elif any(ignored := _without_labels(view)):
        if place or not ignored[0]:  # of the first loss of the first batch the check of targets tells
            yield _no_label(where)
    else:
        yield _finding((f"{where}. Weights, inputs and targets are finite: {maker.told(view)}.", LATER), MADE)


def _finding(evidence: tuple[str, ...], advice: str, sure: float = 0.97, explains: float = 1.0) -> Finding:
    return Finding(cause="not_a_number", sure=sure, explains=explains, evidence=evidence, advice=advice)


def _no_label(where: str) -> Finding:
    return Finding(
        cause="labels_ignored",
        sure=0.96,
        explains=1.0,
        evidence=(
            f"{where}: every label that cross-entropy is given there is ignored, and the mean over no label is nan.",
            LATER,
        ),
        advice="leave out batches without a label that counts, or divide the sum of the losses by max(count, 1).",
    )


def _by_gradient(exam: Exam) -> Iterator[Finding]:
    """The loss is a number, and its gradient is not: the next step makes the weights nan, whatever the rate."""
    for place, batch in enumerate(exam.batches(len(exam.base.losses))[: len(exam.case.batches)]):
        bad = [name for name, one in exam.gradients(batch).items() if not bool(torch.isfinite(one).all())]
        if bad:
            yield _finding(
                (
                    f"The loss of batch {place + 1} is {exam.still.losses[place]:.4g}, and its gradient is no number at"
                    f" {plural(len(bad), 'parameter')} ({few(bad)}): the step on it makes them nan.",
                ),
                "look for a root or a norm of 0, and for torch.where between a number and something infinite: their gradients are"
                " nan. torch.autograd.set_detect_anomaly(True) names the line.",
                sure=0.95,
            )
            return


def _bad_weights(model: nn.Module) -> str | None:
    bad = {name: one for name, one in model.named_parameters() if not bool(torch.isfinite(one).all())}
    if not bad:
        return None
    count = sum(int((~torch.isfinite(one)).sum()) for one in bad.values())
    every = sum(one.numel() for one in model.parameters())
    return f"{plural(count, 'weight')} of {every:,} {_are(count)} no number ({few([*bad])})"


def _bad_data(batch: Any, view: View) -> str | None:
    """The first tensor of the batch with values that are no numbers, or else of what the model or the loss is given."""
    named = [(f"batch{keystr(path)}", one) for path, one in tree_flatten_with_path(batch)[0]]
    given = [("what the model is given", one) for one in tree_leaves((view.inputs, dict(view.keywords)))]
    targets = [("the target of the loss", call.target) for call in view.losses]
    for name, one in (*named, *given, *targets):
        if isinstance(one, Tensor) and not one.requires_grad and _is_bad(one):
            count, kind = int((~torch.isfinite(one)).sum()), "inf" if not bool(one.isnan().any()) else "nan"
            return f"{plural(count, 'value')} of {one.numel():,} in {name} {_are(count)} {kind}{_rows_told(_bad_rows(one))}"
    return None


def _is_bad(one: Tensor) -> bool:
    """Whether there is a value that is no number; a mask of zeros and minus infinity is none."""
    if not one.is_floating_point() or bool(torch.isfinite(one).all()):
        return False
    return not bool(((one == 0) | (one == -math.inf)).all())


def _without_labels(view: View) -> list[bool]:
    """Of each cross-entropy, whether none of its labels counts."""
    calls = [one for one in view.losses if one.name in CLASSIFIERS and not one.target.is_floating_point()]
    return [bool((one.target == int(one.settings.get("ignore_index", -100))).all()) for one in calls]


class _Maker:
    """Which module first returns what is no number."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.passed_on, self.rows = False, Tensor()
        self.dtype = ""

    def keep(self, name: str, module: nn.Module, args: Any, output: Any) -> None:
        bad = next((one for one in float_tensors(output) if bool((one.isnan() | (one == math.inf)).any())), None)
        if self.name is None and bad is not None:
            self.name = f"{name} ({type(module).__name__})" if name else f"the model ({type(module).__name__})"
            self.passed_on = any(_is_bad(one) for one in float_tensors(args))
            self.rows, self.dtype = _bad_rows(bad), str(bad.dtype).removeprefix("torch.")

    def told(self, view: View) -> str:
        if self.name is None:
            return "all modules return numbers, and the loss that is computed from them is none"
        made = f"the code before {self.name} makes it" if self.passed_on else f"{self.name} is the first to return it"
        half = f" in {self.dtype}" if self.dtype in ("float16", "bfloat16") else ""
        return f"{made}{half}{_rows_told(self.rows)}{self._padding(view)}"

    def _padding(self, view: View) -> str:
        """Whether exactly these rows hold one and the same token, or mask, everywhere."""
        for one in tree_leaves((view.inputs, dict(view.keywords))):
            if not isinstance(one, Tensor) or one.is_floating_point() or one.dim() != 2 or len(one) != len(self.rows):
                continue
            alike = (one == one[:, :1]).all(dim=1)
            if torch.equal(alike.cpu(), self.rows.cpu()) and len(torch.unique(one[alike])) == 1 and not bool(alike.all()):
                return f", and just there an input is {int(one[alike][0, 0])} everywhere: nothing but padding"
        return ""


def _bad_rows(one: Tensor) -> Tensor:
    """Of each sample whether it holds a value that is no number."""
    return (~torch.isfinite(one)).reshape(len(one), -1).any(dim=1) if one.dim() else Tensor()


def _rows_told(rows: Tensor) -> str:
    """In which rows of a batch, if they are some of them."""
    if rows.numel() < 2 or bool(rows.all()):
        return ""
    found = [str(int(one)) for one in rows.nonzero().flatten()]
    return f", in row {found[0]} of {len(rows)}" if len(found) == 1 else f", in {len(found)} of {len(rows)} rows ({few(found)})"


def _named(value: float) -> str:
    return "nan" if math.isnan(value) else "infinite"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
