"""Do attention weights sum to one over the keys? Attention written out by hand is followed from its softmax to its product.

Attention that is not written out is asked otherwise: no sample may change the outputs of another.
"""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import crosstalk
from eureka.formats import number, span

HEARD = 0.01
"""A sample that changes the outputs of others by less than this share of its own is not heard by them."""


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
    if share < HEARD:
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
