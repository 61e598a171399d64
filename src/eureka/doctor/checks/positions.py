"""Can the model tell places apart? What changes when tokens change places, how loud positions are, and a trial of louder ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.changes import standard
from eureka.doctor.checks.labels import labels_of
from eureka.doctor.exam import LONG, Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import answers_everywhere, is_same, sequence_of
from eureka.doctor.sizes import float_inputs, is_usual
from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.formats import number, percent
from eureka.patching.attach import find_sites
from eureka.probes.capture import left_alone
from eureka.probes.positions import search
from eureka.starts.clear_start import clear_start

EXACTLY = 1e-4
"""Below this share it is rounding."""
FAINT, DROWNED = 0.03, 0.01
"""Positions below these shares of the content are tried louder; and are called missing even if that does not help at once."""
SAME = 0.01
"""Outputs that change by less than this share, when tokens change places, do not know the order."""
UNNEEDED = 0.5
"""How sure it is that positions are missing where a model has none and nothing shows that the order matters."""


def check(exam: Exam) -> Iterator[Finding]:
    order = exam.once(knows_order)
    if (exam.well and not _blind(exam, order)) or exam.once(drowned_by_inputs):
        return
    loudness = _loudness(exam)
    ratio, added = (None, False) if loudness is None else loudness
    told = []
    if added and ratio is not None:
        told.append(f"Positions are {number(ratio)} of the size of the content that they are added to.")
    elif ratio is not None and ratio < EXACTLY:
        told.append("The model has no positions: its tokens have nothing in common at a place.")
    elif ratio is not None:
        told.append(
            f"What the tokens have in common at a place is {number(ratio)} of the size of what differs: the model has no"
            " positions, or they are faint."
        )
    if order is not None and order < SAME:
        contradicted = _contradicted(exam)
        if contradicted is not None and contradicted < SAME:
            return  # equal tokens of a row have equal labels: the order may not matter
        share = percent(order, 2)
        told.append(f"When the tokens change places, the outputs change by {share} of what other tokens change them by.")
        if contradicted is not None:
            told.append(
                f"Of equal tokens in a row {percent(contradicted, 0)} have different labels: only their places tell them apart."
            )
        at_each = exam.view.tokens is not None and answers_everywhere(exam)  # a sequence, where a set of vectors may be meant
        needed = added or contradicted is not None or at_each
        if exam.learning and not needed:
            return
        yield _missing(exam, told, 0.9 if needed else UNNEEDED, added=added, needed=needed)
    elif ratio is not None and ratio < FAINT:
        found = exam.unlocks(lambda fork: _louder(exam, fork), count=LONG) if ratio > 0 and added else None
        if found is not None:
            told.append(f"When they are as large as the content, the loss falls by {percent(found.share, 1)} in {LONG} steps.")
        if found is not None or (ratio < DROWNED and (added or order is None or _sees_no_order(exam))):
            yield _missing(exam, told, 0.9 if found is not None else 0.8, added=added)


def drowned_by_inputs(exam: Exam) -> bool:
    """Whether inputs of an unusual size hide the order: positions are faint beside them, and would not be if they were scaled."""
    main = float_inputs(exam)
    if main is None or is_usual(main):
        return False
    order, loudness = exam.once(knows_order), _loudness(exam)
    if order is not None and order < SAME and (knows_order(exam, standard) or 0.0) >= SAME:
        return True
    faint = loudness is not None and loudness[1] and loudness[0] < FAINT
    scaled = _loudness(exam, standard) if faint else None
    return scaled is not None and scaled[0] >= FAINT


def _contradicted(exam: Exam) -> float | None:
    """Of pairs of equal tokens in a row, how many have different labels; None if there are too few to tell."""
    found = labels_of(exam.view)
    if found is None or not answers_everywhere(exam) or len(exam.view.all_tokens) > 1:
        return None  # a decoder answers at places of its own
    tokens, labels = (one[:64, :128] for one in found)
    equal = (tokens[:, :, None] == tokens[:, None, :]) & (labels[:, :, None] >= 0) & (labels[:, None, :] >= 0)
    equal &= ~torch.eye(tokens.shape[1], dtype=torch.bool, device=tokens.device)
    pairs = int(equal.sum())
    return float((equal & (labels[:, :, None] != labels[:, None, :])).sum()) / pairs if pairs >= 40 else None


def _sees_no_order(exam: Exam) -> bool:
    """Whether the first attention gives the last token the same, whatever the order of those before it.

    Positions that turn q and k, or are added to the logits, show here; a causal mask alone does not.
    """
    sites, kept = find_sites(exam.glass.model).sites, list[Tensor]()

    def keep(_module: Any, _args: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        if isinstance(output, Tensor) and output.dim() == 3:
            kept.append(output.detach().double())

    if not sites or torch.finfo(next(exam.glass.model.parameters()).dtype).bits < 32:
        return False
    handle = sites[0].module.register_forward_hook(keep)
    try:
        order = knows_order(exam)
    finally:
        handle.remove()
    if order is None or len(kept) < 3 or len({one.shape for one in kept[-3:]}) > 1:
        return False
    plain, moved, other = (one[:, -1] for one in kept[-3:])
    return _apart(moved, plain) < EXACTLY * _apart(other, plain)


def _blind(exam: Exam, order: float | None) -> bool:
    """Whether each token is answered by a model that has no idea of its place, and much is left to learn."""
    much = exam.chance is not None and exam.end > 0.5 * exam.chance
    return order is not None and order < 0.1 * SAME and answers_everywhere(exam) and much


def _missing(exam: Exam, evidence: list[str], sure: float, *, added: bool, needed: bool = True) -> Finding:
    """added    learned positions are there, and can be made louder; needed   whether the task is known to be one of order"""
    advice = "make the positions as large as the content." if added else "add learned positions to the tokens."
    return Finding(
        cause="positions_missing",
        sure=sure,
        explains=0.93,
        evidence=tuple(evidence),
        advice=advice if needed else f"if the order matters, {advice} A task on sets, such as points of a cloud, needs none.",
        code="eureka.clear_start(model, inputs, logits=None, trained=True)" if added else _embedding(exam),
    )


def _embedding(exam: Exam) -> str:
    """Code that adds positions to the tokens x that enter the first attention."""
    shape = exam.once(_entering)
    if shape is None:
        return ""
    return f"positions = torch.nn.Embedding({shape[0]}, {shape[1]}); x = x + positions.weight[: x.shape[1]]"


def _entering(exam: Exam) -> tuple[int, int] | None:
    """How many tokens enter the first attention, and how wide they are; None if that is not seen."""
    sites, seen = find_sites(exam.glass.model).sites, _Sums()
    if not sites:
        return None
    handle = sites[0].module.register_forward_pre_hook(seen.add, with_kwargs=True)
    try:
        exam.peek()
    finally:
        handle.remove()
    return (int(seen.total.shape[0]), int(seen.total.shape[1])) if seen.count else None


def _louder(exam: Exam, fork: Fork) -> None:
    clear_start(fork.model, exam.given, logits=None, trained=True)


def _loudness(exam: Exam, prepare: Callable[[Any], Any] = lambda one: one) -> tuple[float, bool] | None:
    """rms(positions) / rms(content), and whether they were seen to be added; if not, it is measured at the first attention."""
    model = exam.case.fork().model
    sites = find_sites(model).sites
    if not sites or exam.given is None or (exam.view.keywords and exam.view.inputs) or len(exam.view.inputs) > 1:
        return None
    try:
        with torch.no_grad(), left_alone(model):
            found = search(model, tree_map(prepare, exam.given), sites)
    except (RequestError, RuntimeError):
        return None
    if found.learned:
        return min(addition.ratio for addition in found.learned), True
    if found.zero:
        return 0.0, True
    ratio = _by_place(exam)
    return None if ratio is None else (ratio, False)


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


def knows_order(exam: Exam, prepare: Callable[[Any], Any] = lambda one: one) -> float | None:
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
        exam.peek(inputs=lambda given, change=change: tree_map(lambda one: prepare(change(one)), given)).head  # type: ignore[misc]
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
