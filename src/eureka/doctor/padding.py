"""Which tokens are padding, by a mask in the batch or by a token that only fills the ends of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from eureka.doctor.exam import Exam
from eureka.doctor.sight import is_same, sequence_of


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


def mask_of(exam: Exam) -> Tensor | None:
    """Zeros and ones, in the batch or the model's arguments, that tell some tokens of each row from the others: (B, T)."""
    sequence = sequence_of(exam.view)
    if sequence is None:
        return None
    leaves = tree_leaves((exam.view.inputs, dict(exam.view.keywords), exam.case.batches[0]))
    for one in leaves:
        if isinstance(one, Tensor) and one.shape == sequence.shape[:2] and not is_same(one, sequence) and _is_mask(one):
            return one.bool()
    return None


def _is_mask(one: Tensor) -> bool:
    """Zeros and ones, in one stretch of each row or at its ends."""
    if one.dtype != torch.bool and not bool(((one == 0) | (one == 1)).all()):
        return False
    mask = one.bool()
    changes = (mask[:, 1:] != mask[:, :-1]).sum(dim=1)
    return bool((changes <= 2).all() and (changes >= 1).any())
