"""Is there something to learn from? Repeated rows, inputs that do not differ, inputs of a size that nothing else has."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from eureka.doctor.exam import LONG, STEPS, Exam
from eureka.doctor.finding import Finding
from eureka.forks.case import Fork
from eureka.forks.trial import gain, try_steps
from eureka.formats import number, percent, plural

OFTEN = 0.5
"""A share of repeated rows above which it is worth a word: short rows of few tokens repeat by chance."""
FEW = 64
"""Rows that can be learned by heart."""
USUAL = (0.05, 20.0)
"""Root mean squares of inputs that need no scaling."""


def check(exam: Exam) -> Iterator[Finding]:
    yield from _constant(exam)
    yield from _repeated(exam)
    yield from _unscaled(exam)


def model_inputs(exam: Exam) -> list[Tensor]:
    """What the model is given in the first batch, one row a sample, without masks, labels and places by their names."""
    named = {
        name: one for name, one in exam.view.keywords.items() if not any(part in name for part in ("mask", "label", "position"))
    }
    leaves = tree_leaves((exam.view.inputs, named))
    return [one for one in leaves if isinstance(one, Tensor) and one.dim() >= 2 and len(one) > 0 and one.dtype != torch.bool]


def _constant(exam: Exam) -> Iterator[Finding]:
    given = model_inputs(exam)
    if not given or len(given[0]) < 2:
        return
    main = given[0].detach().float()
    between = float((main - main[:1]).abs().max())
    scale = float(main.abs().max()) or 1.0
    if between > 1e-4 * scale:
        return
    yield Finding(
        cause="inputs_constant",
        sure=0.96,
        explains=0.97,
        evidence=(
            f"All {len(main)} samples of a batch are equal to {number(between / scale)} of their size: the model cannot tell them"
            " apart, and can learn no more than how often each label occurs.",
        ),
        advice="look at how inputs are read, normalised and collated.",
    )


def _rows(batch: Any) -> list[bytes]:
    """A digest of each sample: of all tensors whose first axis is that of the batch."""
    leaves = [one for one in tree_leaves(batch) if isinstance(one, Tensor) and one.dim() >= 1]
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
    if again < OFTEN:
        return
    what = "every batch is the same batch" if alone else f"{percent(again, 0)} of the rows have occurred before"
    yield Finding(
        cause="data_repeated",
        sure=0.9 if alone or again > 0.5 else 0.75,
        explains=0.85 if alone else min(0.85, 0.35 + again / 2),
        evidence=(f"In {plural(len(batches), 'batch', 'batches')} {what}: {len(counts):,} different rows of {total:,}.",),
        advice="look at the sampler, the collation and the source for duplicates; shuffle.",
        numbers={"repeated": again, "rows": float(total)},
    )


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


def _unscaled(exam: Exam) -> Iterator[Finding]:
    floats = [one for one in model_inputs(exam) if one.is_floating_point() and not _is_zeros_and_ones(one)]
    if not floats or exam.well:
        return
    main = floats[0].detach().float()
    size, offset = float(main.square().mean().sqrt()), abs(float(main.mean())) / (float(main.std()) or 1.0)
    if USUAL[0] <= size <= USUAL[1] and offset < 20:
        return
    batches = exam.batches(LONG)
    scaled = gain(try_steps(exam.case, batches, _scaled), try_steps(exam.case, batches, _scaled, still=True))
    if not scaled.clear(0.03) or scaled.share < 3 * max(exam.progress.share, 0.0):
        return
    yield Finding(
        cause="inputs_unscaled",
        sure=0.92,
        explains=0.93,
        evidence=(
            f"Inputs have a root mean square of {number(size)} and a mean of {number(float(main.mean()))}; scaled to mean 0 and"
            f" spread 1 the loss falls by {percent(scaled.share, 1)} in {LONG} steps, as they are by"
            f" {percent(max(exam.progress.share, 0.0), 1)}.",
        ),
        advice="normalise the inputs.",
        code="x = (x - x.mean()) / x.std()",
        numbers={"rms": size, "gain": scaled.share},
    )


def _scaled(fork: Fork) -> None:
    """The model's float inputs with mean 0 and spread 1."""

    def standard(one: Any) -> Any:
        if not isinstance(one, Tensor) or not one.is_floating_point() or one.dim() < 2 or _is_zeros_and_ones(one):
            return one
        return (one - one.mean()) / (one.std() + 1e-12)

    fork.model.register_forward_pre_hook(lambda _, args, kwargs: tree_map(standard, (args, kwargs)), with_kwargs=True)


def _is_zeros_and_ones(one: Tensor) -> bool:
    return bool(((one == 0) | (one == 1)).all())
