"""Can the model tell places apart? What changes when tokens change places, how loud positions are, and a trial of louder ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.exam import LONG, Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import answers_everywhere, is_same, sequence_of
from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.formats import number, percent
from eureka.patching.attach import find_sites
from eureka.probes.capture import left_alone
from eureka.probes.positions import search
from eureka.starts.clear_start import clear_start

FAINT, DROWNED = 0.03, 0.01
"""Positions below these shares of the content are tried louder; and are called missing even if that does not help at once."""
SAME = 0.01
"""Outputs that change by less than this share, when tokens change places, do not know the order."""


def check(exam: Exam) -> Iterator[Finding]:
    order = _order(exam)
    if exam.well and not _blind(exam, order):
        return
    ratio = _loudness(exam)
    told = [] if ratio is None else [f"Positions are {number(ratio)} of the size of the content that they are added to."]
    if order is not None and order < SAME:
        share = percent(order, 2)
        told.append(f"When the tokens change places, the outputs change by {share} of what other tokens change them by.")
        yield _missing(told, 0.9)
    elif ratio is not None and ratio < FAINT:
        found = exam.unlocks(lambda fork: _louder(exam, fork), count=LONG) if ratio > 0 else None
        if found is not None:
            told.append(f"When they are as loud as the content, the loss falls by {percent(found.share, 1)} in {LONG} steps.")
        if found is not None or ratio < DROWNED:
            yield _missing(told, 0.9 if found is not None else 0.8)


def _blind(exam: Exam, order: float | None) -> bool:
    """Whether each token is answered by a model that has no idea of its place, and much is left to learn."""
    much = exam.chance is not None and exam.end > 0.5 * exam.chance
    return order is not None and order < 0.1 * SAME and answers_everywhere(exam) and much


def _missing(evidence: list[str], sure: float) -> Finding:
    return Finding(
        cause="positions_missing",
        sure=sure,
        explains=0.93,
        evidence=tuple(evidence),
        advice="add learned positions to the tokens, or make them as loud as the content.",
        code="eureka.clear_start(model, inputs, logits=None, trained=True)",
    )


def _given(exam: Exam) -> Any:
    return dict(exam.view.keywords) or exam.view.inputs[0]


def _louder(exam: Exam, fork: Fork) -> None:
    clear_start(fork.model, _given(exam), logits=None, trained=True)


def _loudness(exam: Exam) -> float | None:
    """rms(positions) / rms(content) where they are added; measured at the first attention where no addition was found."""
    model = exam.case.fork().model
    sites = find_sites(model).sites
    if not sites or (exam.view.keywords and exam.view.inputs) or len(exam.view.inputs) > 1:
        return None
    try:
        with torch.no_grad(), left_alone(model):
            found = search(model, _given(exam), sites)
    except (RequestError, RuntimeError):
        return None
    if found.learned:
        return min(addition.ratio for addition in found.learned)
    return 0.0 if found.zero else _by_place(exam)


def _by_place(exam: Exam) -> float | None:
    """What the tokens that enter the first attention have in common at a place, by what differs from sample to sample.

    Tokens that are the same in every sample, such as a class token, are left out. None if the tokens are not seen.
    """
    sums = _Sums()
    handle = find_sites(exam.glass.model).sites[0].module.register_forward_pre_hook(sums.add, with_kwargs=True)
    try:
        for batch in exam.case.batches:
            exam.peek(batch=batch)
    finally:
        handle.remove()
    return sums.ratio()


class _Sums:
    """Sums over samples of tokens and of their squares."""

    def __init__(self) -> None:
        self.count, self.total, self.squares = 0, torch.zeros(0), torch.zeros(0)

    def add(self, _: torch.nn.Module, args: Any, kwargs: Any) -> None:
        found = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.dim() == 3]
        if not found or (self.count and found[0].shape[1:] != self.total.shape):
            return
        x = found[0].detach().double()
        if not self.count:
            self.total, self.squares = torch.zeros_like(x[0]), torch.zeros_like(x[0])
        self.count += len(x)
        self.total += x.sum(dim=0)
        self.squares += x.square().sum(dim=0)

    def ratio(self) -> float | None:
        """The root mean square of what belongs to the place by that of the rest, without what chance alone would give."""
        if self.count < 64:
            return None
        means = self.total / self.count
        rest = (self.squares / self.count - means.square()).mean(dim=1)
        varied = rest > 1e-6 * rest.median()
        if int(varied.sum()) < 4:
            return None
        content = float(rest[varied].mean())
        places = float((means[varied] - means[varied].mean(dim=0)).square().mean()) - content / self.count
        return math.sqrt(max(places, 0.0) / content)


def _order(exam: Exam) -> float | None:
    """What changing places changes, as a share of what other tokens change; None if the model is not given a sequence.

    The last token stays, and with an output for each token that of the last one is looked at: there a causal model sees them all.
    """
    sequence = sequence_of(exam.view)
    if sequence is None or sequence.shape[1] < 4 or len(sequence) < 2:
        return None
    length = sequence.shape[1]
    order = torch.randperm(length - 1, generator=torch.Generator().manual_seed(0)).to(sequence.device)
    order = torch.cat([order, order.new_tensor([length - 1])])
    plain, moved, other = (
        exam.peek(inputs=lambda given, change=change: tree_map(change, given)).head  # type: ignore[misc]
        for change in (lambda one: one, lambda one: _moved(one, sequence, order), lambda one: _replaced(one, sequence))
    )
    if plain is None or moved is None or other is None or moved.shape != plain.shape:
        return None
    last = slice(-1, None) if answers_everywhere(exam) else slice(None)
    by_content = _apart(other[:, last], plain[:, last])
    return float(_apart(moved[:, last], plain[:, last]) / by_content) if by_content else None


def _apart(one: Tensor, other: Tensor) -> float:
    return float((one.float() - other.float()).square().mean().sqrt())


def _moved(one: Any, sequence: Tensor, order: Tensor) -> Any:
    return one[:, order] if is_same(one, sequence) else one


def _replaced(one: Any, sequence: Tensor) -> Any:
    """Other tokens but for the last."""
    return torch.cat([one.roll(1, dims=0)[:, :-1], one[:, -1:]], dim=1) if is_same(one, sequence) else one
