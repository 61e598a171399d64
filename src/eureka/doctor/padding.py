"""Which tokens are padding, by a mask in the batch or by a token that only fills the ends of rows."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from eureka.doctor.exam import Exam
from eureka.doctor.sight import is_same, sequence_of
from eureka.doctor.view import named_tensors

NAMED = ("attention_mask", "attn_mask", "pad", "src_mask", "input_mask")
"""What the name of a mask of padding holds."""
PERHAPS = ("mask", "valid", "real", "present", "keep")
"""What the name of one may hold."""
OTHER = ("type", "segment", "sentence", "question", "label", "loss", "target", "special", "global", "pos")
"""What the name of something else holds: kinds of tokens, places that the loss asks, tokens that are seen by all."""


@dataclass(frozen=True)
class Fill:
    """A token that fills the ends of rows and occurs nowhere else."""

    token: int
    where: Tensor
    """(B, T)"""
    trailing: bool
    """at the ends of the rows; else at their beginnings"""

    @property
    def share(self) -> float:
        return float(self.where.float().mean())


def fill_of(exam: Exam) -> Fill | None:
    """The token that rows are filled up with."""
    tokens = exam.view.tokens
    if tokens is None or tokens.dim() != 2 or len(tokens) < 4:
        return None
    for trailing in (True, False):
        rows = tokens if trailing else tokens.flip(1)
        for token in torch.unique(rows[:, -1]).tolist():
            here = rows == token
            ends = here.flip(1).cumprod(dim=1).flip(1).bool()
            lengths = ends.sum(dim=1)
            if torch.equal(here, ends) and int(ends.sum()) >= 2 * len(rows) and len(set(lengths.tolist())) > 2:
                return Fill(int(token), ends if trailing else ends.flip(1), trailing)
    return None


@dataclass(frozen=True)
class Mask:
    """Which tokens are told from the others, (B, T): the hidden ones, or all but those."""

    where: Tensor
    named: bool
    """called an attention mask or padding; else it only looks like one"""


def mask_of(exam: Exam) -> Mask | None:
    """Zeros and ones, in the batch or the model's arguments, that tell padding from the tokens of each row."""
    sequence = sequence_of(exam.view)
    if sequence is None:
        return None
    found = list(_arguments(exam))
    for _, one in found:
        if one.shape == sequence.shape[:2] and not is_same(one, sequence) and _is_mask(one):
            names = {name.lower() for name, other in found if is_same(other, one)} - {""}
            if _looks_like_padding(one.bool(), names, sequence, boolean=one.dtype == torch.bool):
                return Mask(one.bool(), _has(names, NAMED))
    return None


def _arguments(exam: Exam) -> Iterator[tuple[str, Tensor]]:
    """What the model is called with, by the names that it gives it; and what is in the batch."""
    parameters = inspect.signature(exam.case.model.forward).parameters.values()
    names = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    names += [""] * len(exam.view.inputs)
    for name, value in zip(names, exam.view.inputs, strict=False):
        yield from named_tensors(value, name)
    yield from named_tensors(dict(exam.view.keywords))
    yield from named_tensors(exam.case.batches[0])


def _has(names: set[str], parts: tuple[str, ...]) -> bool:
    return any(part in name for name in names for part in parts)


def _looks_like_padding(mask: Tensor, names: set[str], sequence: Tensor, *, boolean: bool) -> bool:
    """By its name; or it fills one end of rows with one value; or, without a name, it is a stretch of another length each row."""
    if _has(names, OTHER):
        return False
    if _has(names, NAMED) or any(_fills_ends(hidden, sequence) for hidden in (mask, ~mask)):
        return True
    return boolean and (not names or _has(names, PERHAPS)) and len(set(mask.sum(dim=1).tolist())) > 2


def _fills_ends(where: Tensor, sequence: Tensor) -> bool:
    """Whether these places are all at the ends of rows, or all at their beginnings, and hold one and the same value."""
    ends = any(torch.equal(here.long().cumprod(dim=1).bool(), here) for here in (where, where.flip(1)))
    return ends and len(set(where.sum(dim=1).tolist())) > 1 and is_constant(where, sequence)


def is_constant(where: Tensor, sequence: Tensor) -> bool:
    """Whether these places all hold one and the same token or vector."""
    held = sequence[where]
    return len(held) > 0 and bool((held == held[0]).all())


def _is_mask(one: Tensor) -> bool:
    """Zeros and ones, in one stretch of each row or at its ends."""
    if one.dtype != torch.bool and not bool(((one == 0) | (one == 1)).all()):
        return False
    mask = one.bool()
    changes = (mask[:, 1:] != mask[:, :-1]).sum(dim=1)
    return bool((changes <= 2).all() and (changes >= 1).any())
