"""Can the model tell places apart? How loud positions are, and what changes when tokens change places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import leak, sequence_of
from eureka.errors import RequestError
from eureka.formats import number, percent
from eureka.patching.attach import find_sites
from eureka.probes.capture import left_alone
from eureka.probes.position_kinds import why_none
from eureka.probes.positions import search

FAINT = 0.03
"""Positions below this share of the content are hard to address by."""
SAME = 0.01
"""Outputs that change by less than this share, when tokens change places, do not know the order."""


def check(exam: Exam) -> Iterator[Finding]:
    if exam.learning:
        return
    order = _order_matters(exam)
    ratio, why = _loudness(exam)
    causal = (
        sequence_of(exam.view) is not None and exam.view.head is not None and exam.view.head.dim() == 3 and leak(exam) is None
    )
    if order is not None and order < SAME and not causal:
        told = f"Positions are {number(ratio)} of the content's size. " if ratio is not None else ""
        yield _missing(
            f"{told}When the tokens change places the outputs change by {percent(order, 2)} of what other tokens change them by.",
            0.9,
        )
    elif ratio is not None and ratio < FAINT:
        yield _missing(f"Positions are {number(ratio)} of the size of the content that they are added to.", 0.75)
    elif order is None and why.startswith("no learned positions were found") and not causal:
        yield _missing(why, 0.6)


def _missing(evidence: str, sure: float) -> Finding:
    return Finding(
        cause="positions_missing",
        sure=sure,
        explains=0.9,
        evidence=(evidence,),
        advice="add learned positions to the tokens, or make them as loud as the content.",
        code="eureka.clear_start(model, inputs, logits=None, trained=True)",
    )


def _loudness(exam: Exam) -> tuple[float | None, str]:
    """rms(positions) / rms(content) where they are added; or why that is not known."""
    model = exam.case.fork().model
    sites = find_sites(model).sites
    given: Any = dict(exam.view.keywords) or exam.view.inputs[0]
    if not sites or (exam.view.keywords and exam.view.inputs) or len(exam.view.inputs) > 1:
        return None, ""
    try:
        with torch.no_grad(), left_alone(model):
            found = search(model, given, sites)
    except (RequestError, RuntimeError):
        return None, ""
    if found.learned:
        return min(addition.ratio for addition in found.learned), ""
    return (0.0, "") if found.zero else (None, why_none(model, found))


def _order_matters(exam: Exam) -> float | None:
    """What changing places changes, as a share of what other tokens change; None if the model is not given a sequence."""
    sequence = sequence_of(exam.view)
    if sequence is None or sequence.shape[1] < 3 or len(sequence) < 2:
        return None
    order = torch.randperm(sequence.shape[1], generator=torch.Generator().manual_seed(0)).to(sequence.device)
    plain = exam.peek().head
    moved = exam.peek(inputs=lambda given: tree_map(lambda one: _in_order(one, sequence.shape[:2], order), given)).head
    other = exam.peek(inputs=lambda given: tree_map(lambda one: _rolled(one, sequence.shape[:2]), given)).head
    if plain is None or moved is None or other is None:
        return None
    if plain.dim() == 3 and plain.shape[:2] == sequence.shape[:2]:
        plain = plain[:, order]  # the answer moves with its token
        other = other[:, order]
    by_content = float((other.float() - plain.float()).square().mean().sqrt())
    return float((moved.float() - plain.float()).square().mean().sqrt()) / by_content if by_content else None


def _in_order(one: object, shape: torch.Size, order: Tensor) -> object:
    return one[:, order] if isinstance(one, Tensor) and one.shape[:2] == shape else one


def _rolled(one: object, shape: torch.Size) -> object:
    return one.roll(1, dims=0) if isinstance(one, Tensor) and one.shape[:2] == shape else one
