"""Do attention weights sum to one over the keys? Attention written out by hand is followed from its softmax to its product.

Attention that is not written out is asked otherwise: given samples of which one was changed, it may not change the others. Other
layers may: a mixture of experts with a capacity gives a token up when others of the batch were first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import crosstalk, sequence_of
from eureka.doctor.view import AttentionCall
from eureka.formats import number, span

HEARD = 0.01
"""A sample that changes the outputs of others by less than this share of its own is not heard by them."""
RARELY = 1e-6
"""A share of a change that is rounding."""


def check(exam: Exam) -> Iterator[Finding]:
    wrong = [call for call in exam.view.softmaxes if call.axis != call.summed and call.weights.shape[call.summed] > 1]
    if not wrong:
        yield from _over_the_batch(exam)
        return
    call = wrong[0]
    sums = call.weights.float().sum(dim=call.summed)
    yield Finding(
        cause="attention_axis",
        sure=0.97,
        explains=0.96,
        evidence=(
            f"A softmax over axis {call.axis} of weights of shape {tuple(call.weights.shape)} is multiplied along axis"
            f" {call.summed}: the weights of a query sum to {span([float(sums.min()), float(sums.max())])}, not to 1"
            f" ({len(wrong)} of {len(exam.view.softmaxes)} such products).",
        ),
        advice=f"take the softmax over the keys: softmax(dim={call.summed}).",
    )


def _over_the_batch(exam: Exam) -> Iterator[Finding]:
    share = crosstalk(exam)
    if share < HEARD or not (_by_hand(exam) or _by_call(exam)):
        return
    yield Finding(
        cause="attention_axis",
        sure=0.95,
        explains=0.96,
        evidence=(
            f"Changing one sample of a batch changes the outputs of the others, by up to {number(share)} of what it changes its"
            " own, in evaluation mode: attention runs over the batch.",
        ),
        advice="give attention its axes in the order that it expects; nn.MultiheadAttention and nn.TransformerEncoderLayer take"
        " (tokens, batch, width) unless batch_first=True.",
        code="nn.MultiheadAttention(…, batch_first=True)",
        numbers={"share": share},
    )


def _by_hand(exam: Exam) -> bool:
    """Whether attention that is written out has as many keys as the batch has samples, and not as many as there are tokens."""
    size, sequence = _size(exam), sequence_of(exam.view)
    tokens = 0 if sequence is None else sequence.shape[1]
    return any(call.weights.shape[call.summed] == size != tokens for call in exam.view.softmaxes)


def _by_call(exam: Exam) -> bool:
    """Whether a call of PyTorch's attention that is given one changed sample answers otherwise for the others."""
    size = _size(exam)
    plain = exam.peek().attentions
    changed = exam.peek(inputs=lambda given: tree_map(lambda one: _first_changed(one, size), given)).attentions
    return any(_mixes(a, b, size) for a, b in zip(plain, changed, strict=False))


def _size(exam: Exam) -> int:
    """How many samples the batch has."""
    return len(exam.view.head) if exam.view.head is not None and exam.view.head.dim() > 1 else 0


def _mixes(plain: AttentionCall, changed: AttentionCall, size: int) -> bool:
    """Along an axis of samples only the first has changed in what is given, and others in the result."""
    if any(a.shape != b.shape for a, b in zip(plain.given, changed.given, strict=True)):
        return False
    for axis in range(plain.result.dim() - 1):
        if plain.result.shape[axis] % size or plain.result.shape != changed.result.shape:
            continue
        given = [_changes(a, b, axis, size) for a, b in zip(plain.given, changed.given, strict=True)]
        if all(one is not None and one[1] <= RARELY * one[0] for one in given) and any(one and one[0] > 0 for one in given):
            answer = _changes(plain.result, changed.result, axis, size)
            return answer is not None and answer[1] > HEARD * answer[0]
    return False


def _changes(one: Tensor, other: Tensor, axis: int, size: int) -> tuple[float, float] | None:
    """How much the first sample changes along an axis, and the others at most; None if it is no axis of samples."""
    if one.dim() <= axis or one.shape[axis] % size:
        return None
    moved = (one.float() - other.float()).abs().movedim(axis, 0).reshape(size, -1).amax(dim=1)
    return float(moved[0]), float(moved[1:].max())


def _first_changed(one: Any, size: int) -> Any:
    """The first sample is replaced by the last."""
    if not isinstance(one, Tensor) or one.dim() < 2 or len(one) != size:
        return one
    return torch.cat([one[-1:], one[1:]])
