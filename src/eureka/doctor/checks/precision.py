"""Are updates rounded away? Counted element by element."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import percent

MOST = 0.5
"""A share of lost updates above which learning suffers."""


def check(exam: Exam) -> Iterator[Finding]:
    named = dict(exam.case.model.named_parameters())
    half = {name: one for name, one in exam.base.parameters.items() if torch.finfo(named[name].dtype).bits <= 16}
    pushed, lost = sum(one.pushed for one in half.values()), sum(one.rounded for one in half.values())
    if not pushed or lost / pushed < MOST or not max(exam.base.rates, default=0.0):
        return
    share = lost / pushed
    dtype = str(named[next(iter(half))].dtype).removeprefix("torch.")
    if exam.well and share < 0.8:
        return
    yield Finding(
        cause="precision",
        sure=0.93,
        explains=share,
        evidence=(
            f"{percent(share, 0)} of the updates of weights in {dtype} are smaller than its rounding and change nothing: the"
            " weights have a gradient, and stay bit for bit as they were.",
        ),
        advice="keep the weights in float32 and use autocast for the computation, or an optimiser with a float32 copy.",
        code="model.float()  # and: with torch.autocast(device_type, dtype=torch.bfloat16): …",
        numbers={"rounded": share},
    )
