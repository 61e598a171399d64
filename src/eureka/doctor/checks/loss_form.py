"""Is the loss fed with what it expects? The values and shapes that reach it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.view import LossCall
from eureka.formats import number

SQUASHING = {"SigmoidBackward0": "sigmoid", "HardsigmoidBackward0": "sigmoid", "SoftmaxBackward0": "softmax"}
"""What PyTorch's graph calls the functions that make probabilities."""
PASSING = (
    "View", "UnsafeView", "Reshape", "Squeeze", "Unsqueeze", "Select", "Slice", "Index", "Gather", "Transpose", "TBackward",
    "Permute", "Expand", "ToCopy", "Clone", "Alias", "Clamp", "Cat", "Stack", "Split", "Unbind",
)  # fmt: skip
"""How the names of functions begin that leave values as they are."""


def check(exam: Exam) -> Iterator[Finding]:
    for call in exam.view.losses:
        found = _softmax_twice(call) or _not_logarithms(call) or _sigmoid_twice(call) or _broadcast(call)
        if found is not None:
            yield found
            return
    if exam.view.stretched is not None:
        yield _crosswise("The loss", *exam.view.stretched)


def _softmax_twice(call: LossCall) -> Finding | None:
    given = call.given.detach()
    if call.name != "cross_entropy" or given.dim() < 2 or given.shape[1] < 2:
        return None
    rows = given.float().movedim(1, -1).reshape(-1, given.shape[1])
    if not (_in_unit(rows) and _sums_to_one(rows)):
        return None
    classes = rows.shape[1]
    least = math.log(math.e + classes - 1) - 1
    return _misuse(
        f"cross_entropy is given probabilities: every row is between 0 and 1 and sums to 1. It takes the softmax again, so even a"
        f" perfect answer has a loss of {least:.3g}, where chance is ln {classes} = {math.log(classes):.3g}.",
        "pass the logits to cross_entropy, without a softmax before it.",
    )


def _not_logarithms(call: LossCall) -> Finding | None:
    given = call.given.detach()
    if call.name != "nll_loss" or given.dim() < 2:
        return None
    rows = given.float().movedim(1, -1).reshape(-1, given.shape[1])
    if _sums_to_one(rows.exp(), 0.02):
        return None
    what = "probabilities" if _in_unit(rows) and _sums_to_one(rows) else "values whose exponentials do not sum to 1"
    return _misuse(f"nll_loss is given {what}, where it expects logarithms of probabilities.", "use cross_entropy on the logits.")


def _sigmoid_twice(call: LossCall) -> Finding | None:
    if call.name != "binary_cross_entropy_with_logits" or call.given.numel() < 8:
        return None
    given, origin = call.given.detach().float(), _origin(call.given)
    if not _in_unit(given) or origin not in SQUASHING:
        return None
    return _misuse(
        f"binary_cross_entropy_with_logits is given values between {number(given.min().item())} and {number(given.max().item())}:"
        f" a {SQUASHING[origin]} has made them probabilities, and it takes the sigmoid again.",
        "pass the logits, without a sigmoid before it.",
    )


def _origin(given: Tensor) -> str:
    """The function that values come from, before they were only reshaped, cut or converted."""
    node = given.grad_fn
    while node is not None and node.name().startswith(PASSING) and node.next_functions:
        node = node.next_functions[0][0]
    return "" if node is None else node.name()


def _broadcast(call: LossCall) -> Finding | None:
    if call.settings.get("reduction") == "none" and call.given.dim() == call.target.dim():
        return None  # pairs, laid out by hand
    if call.name not in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss") or call.given.shape == call.target.shape:
        return None
    return _crosswise(call.name, call.given.shape, call.target.shape)


def _crosswise(what: str, given: Sequence[int], target: Sequence[int]) -> Finding:
    return _misuse(
        f"{what} compares a tensor of shape {tuple(given)} with one of shape {tuple(target)}: every value is compared with every"
        " other, and the best answer is the mean.",
        "give both the same shape, for example with squeeze(-1).",
    )


def _misuse(evidence: str, advice: str) -> Finding:
    return Finding(cause="loss_misuse", sure=0.95, explains=0.9, evidence=(evidence,), advice=advice)


def _in_unit(values: Tensor) -> bool:
    return bool((values >= 0).all() and (values <= 1).all())


def _sums_to_one(rows: Tensor, within: float = 1e-3) -> bool:
    return bool(((rows.sum(dim=-1) - 1).abs() < within).all())
