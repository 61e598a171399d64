"""Is there something to learn from? Repeated rows, and inputs that do not differ."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.checks.units import dead_layers
from eureka.doctor.exam import STEPS, Exam
from eureka.doctor.finding import Finding
from eureka.doctor.padding import fill_of
from eureka.doctor.sight import is_same, other_tokens
from eureka.doctor.sizes import model_inputs
from eureka.doctor.view import View, named_tensors
from eureka.formats import number, percent, plural

OFTEN = 0.5
"""A share of repeated rows above which it is worth a word: short rows of few tokens repeat by chance."""
FEW = 64
"""Rows that can be learned by heart."""
MOSTLY = 0.5
"""Where this share of all rows that are possible has occurred, rows must repeat."""
EVEN = 2.0
"""Rows that are drawn from a small set, each as likely as the others, occur with a variance of at most their mean number."""


def check(exam: Exam) -> Iterator[Finding]:
    yield from _constant(exam)
    yield from _repeated(exam)


def _constant(exam: Exam) -> Iterator[Finding]:
    given = model_inputs(exam)
    if not given or len(given[0]) < 2:
        return
    main = given[0].detach().float()
    between = float((main - main[:1]).abs().max())
    scale = float(main.abs().max()) or 1.0
    if between > 1e-4 * scale:
        yield from _without_effect(exam)
        return
    nearly = f" to {number(between / scale)} of their size" if between else ""
    yield Finding(
        cause="inputs_constant",
        sure=0.96,
        explains=0.97,
        evidence=(
            f"All {len(main)} samples of a batch are equal{nearly}: the model cannot tell them apart, and can"
            " learn no more than how often each label occurs.",
        ),
        advice="look at how inputs are read, normalised and collated.",
    )


def _without_effect(exam: Exam) -> Iterator[Finding]:
    """Inputs differ, and yet the outputs for them do not, and did not before training either."""
    if exam.well or exam.once(dead_layers) or _differs(exam) or _differs(exam.untrained):
        return
    yield Finding(
        cause="inputs_constant",
        sure=0.93,
        explains=0.97,
        evidence=("Other inputs give exactly the same outputs: what the model is given does not reach its last layer.",),
        advice="look at what becomes of the inputs on their way into the model: a factor of 0, weights of 0 that are frozen,"
        " a mask, a tensor overwritten.",
    )


def _differs(exam: Exam) -> bool:
    """Whether an output changes when samples change places, or tokens beside padding others; also if that cannot be asked."""
    given = model_inputs(exam)
    size = len(given[0]) if given else 0
    moved, fill, tokens = list[bool](), exam.once(fill_of), exam.view.tokens

    def roll(one: Any) -> Any:
        if fill is not None and tokens is not None and is_same(one, tokens):
            moved.append(True)
            return other_tokens(tokens, ~fill.where)  # other lengths would change the mask, too
        if not isinstance(one, Tensor) or one.dim() < 2 or len(one) != size:
            return one
        other = one.roll(1, dims=0)
        moved.append(not torch.equal(one, other))
        return other

    plain, changed = exam.peek(), exam.peek(inputs=lambda given: tree_map(roll, given))
    pairs = list(zip(_answers(plain), _answers(changed), strict=False))
    return not any(moved) or not pairs or any(a.shape != b.shape or not torch.equal(a, b) for a, b in pairs)


def _answers(view: View) -> list[Tensor]:
    """What the last layer gives, and what the losses are computed from."""
    return [one.detach() for one in (view.head, *(call.given for call in view.losses)) if one is not None]


def _rows(batch: Any) -> list[bytes]:
    """A digest of each sample: of all tensors whose first axis is that of the batch."""
    leaves = [one for _, one in named_tensors(batch) if one.dim() >= 1]
    if not leaves:
        return []
    size = len(leaves[0])
    alike = [one.detach().cpu().contiguous() for one in leaves if len(one) == size]
    parts = [one.float().reshape(size, -1).numpy() for one in alike]
    return [hashlib.blake2b(b"|".join(part[i].tobytes() for part in parts), digest_size=8).digest() for i in range(size)]


def _repeated(exam: Exam) -> Iterator[Finding]:
    batches = exam.case.batches
    counts = Counter(row for batch in batches for row in _rows(batch))
    total = sum(counts.values())
    if total < 8 or len(counts) == 1:
        return
    if len(batches) < STEPS and len(counts) <= FEW and exam.chance is not None and exam.level < 0.5 * exam.chance:
        yield _by_heart(exam, len(counts))
        return
    again = 1 - len(counts) / total
    alone = len(batches) > 1 and len({tuple(_rows(batch)) for batch in batches}) == 1
    evenly = len(counts) > FEW and (alone or np.var(list(counts.values())) <= EVEN * total / len(counts))
    if len(counts) >= MOSTLY * exam.case.source_rows:  # a small set is seen again and again, as it must be
        return
    if again < OFTEN or (not alone and len(counts) >= MOSTLY * _possible(exam)):
        return
    what = "every batch is the same batch" if alone else f"{percent(again, 0)} of the rows have occurred before"
    advice = "look at the sampler, the collation and the source for duplicates; shuffle."
    if alone or evenly:
        data = "the batch is all the data (full-batch training)" if alone else "there is no more data than that"
        advice = f"if {data}, nothing is wrong: look at held-out data. Else {advice}"
    yield Finding(
        cause="data_repeated",
        sure=0.5 if evenly else 0.9 if alone or again > OFTEN else 0.75,
        explains=0.85 if alone else min(0.85, 0.35 + again / 2),
        evidence=(f"In {plural(len(batches), 'batch', 'batches')} {what}: {len(counts):,} different rows of {total:,}.",),
        advice=advice,
        numbers={"repeated": again, "rows": float(total)},
    )


def _possible(exam: Exam) -> float:
    """How many different rows of whole numbers there can be, such as all pairs of two small numbers; of others without end."""
    given = model_inputs(exam)
    main = given[0].detach().cpu().double().flatten(1) if given else None
    if main is None or not torch.equal(main, main.round()):
        return math.inf
    return math.prod(float(len(column.unique())) for column in main.T)


def _by_heart(exam: Exam, rows: int) -> Finding:
    """All the data is a few rows, and the loss on them is low."""
    return Finding(
        cause="data_repeated",
        sure=0.75,
        explains=0.85,
        evidence=(
            f"All the data is {plural(rows, 'row')} in {plural(len(exam.case.batches), 'batch', 'batches')}, and the loss on them"
            f" is {exam.level:.4g}, where chance is {exam.chance:.4g}: they can be learned by heart.",
        ),
        advice="look at the loss on other data; if there is more data, look at the sampler and at what limits it.",
        numbers={"rows": float(rows)},
    )
