"""Do attention weights sum to one over the keys? Attention written out by hand is followed from its softmax to its product."""

from __future__ import annotations

from collections.abc import Iterator

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import span


def check(exam: Exam) -> Iterator[Finding]:
    wrong = [call for call in exam.view.softmaxes if call.axis != call.summed and call.weights.shape[call.summed] > 1]
    if not wrong:
        return
    call = wrong[0]
    sums = call.weights.float().sum(dim=call.summed)
    yield Finding(
        cause="attention_axis",
        sure=0.96,
        explains=0.9,
        evidence=(
            f"A softmax over axis {call.axis} of weights of shape {tuple(call.weights.shape)} is multiplied along axis"
            f" {call.summed}: the weights of a query sum to {span([float(sums.min()), float(sums.max())])}, not to 1"
            f" ({len(wrong)} of {len(exam.view.softmaxes)} such products).",
        ),
        advice=f"take the softmax over the keys: softmax(dim={call.summed}).",
    )
