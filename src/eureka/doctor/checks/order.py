"""Do rows come in the order of their labels? A model that sees one class at a time learns it and forgets the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from eureka.doctor.exam import LEARNED, Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sizes import model_inputs
from eureka.doctor.view import named_tensors
from eureka.formats import fixed, plural

BATCHES, ROWS = 8, 256
"""Fewer batches, or labels, tell nothing of their order, or of whether they are all the same."""
SORTED = 0.1
"""Of the classes beside the first that a shuffled batch would hold, a share below which no sampler mixes rows."""
MISSED = 10.0
"""So many classes must be missing in all, so that they do not by chance."""


def check(exam: Exam) -> Iterator[Finding]:
    batches, given = exam.labels_by_batch, model_inputs(exam)
    if len(batches) < BATCHES or len({len(one) for one in batches}) > 1:  # heads take turns
        return
    if not given or int(batches[0].sum()) > len(given[0]):  # more labels than samples: of tokens
        return
    total = torch.stack(list(batches)).sum(dim=0)
    if int(total.count_nonzero()) == 1:
        yield from _constant(exam, total)
    elif exam.chance is None or exam.level >= LEARNED * exam.chance:
        yield from _sorted(batches, total)


def _constant(exam: Exam, total: Tensor) -> Iterator[Finding]:
    rows, label = int(total.sum()), int(total.argmax())
    if rows < ROWS or len(total) < 2 or not _is_given(exam, label):
        return
    yield Finding(
        cause="labels_constant",
        sure=0.75,
        explains=0.95,
        evidence=(f"All {rows:,} labels are {label}, and the model tells {len(total):,} classes apart.",),
        advice="look at how labels are read; if the rows are sorted by label, shuffle them (DataLoader(..., shuffle=True)).",
        numbers={"rows": float(rows)},
    )


def _is_given(exam: Exam, label: int) -> bool:
    """Whether the labels are in the batch; a contrastive loss makes its own, whose right answer is always in the same place."""
    rows = len(model_inputs(exam)[0])
    given = [one for _, one in named_tensors(exam.case.batches[0]) if not one.is_floating_point()]
    return any(one.numel() == rows and bool((one == label).all()) for one in given)


def _sorted(batches: Sequence[Tensor], total: Tensor) -> Iterator[Finding]:
    classes = float(torch.stack([(one > 0).sum().double() for one in batches]).mean())
    shuffled = float(torch.stack([classes_in_a_sample(total, int(one.sum())) for one in batches]).mean())
    if len(batches) * (shuffled - 1) < MISSED or classes - 1 >= SORTED * (shuffled - 1):
        return
    yield Finding(
        cause="data_sorted",
        sure=0.9,
        explains=0.93,
        evidence=(
            f"Of {plural(len(batches), 'batch', 'batches')} one holds {fixed(classes, 1)} classes on average; with the same rows"
            f" shuffled it would hold {fixed(shuffled, 1)}. While one class comes, the others are forgotten.",
        ),
        advice="shuffle the rows.",
        code="DataLoader(dataset, batch_size=..., shuffle=True)",
        numbers={"classes": classes, "shuffled": shuffled},
    )


def classes_in_a_sample(counts: Tensor, rows: int) -> Tensor:
    """How many classes are expected among so many rows that are drawn without replacement, of rows with these counts."""
    counts, size = counts.double(), counts.sum().double()
    left = size - counts  # rows of other classes
    ways = torch.lgamma(left + 1) - torch.lgamma((left - rows).clamp(min=0) + 1)
    missing = (ways - torch.lgamma(size + 1) + torch.lgamma(size - rows + 1)).exp()
    return torch.where(left >= rows, 1 - missing, 1.0).where(counts > 0, 0.0).sum()
