"""What a model sees: which inputs change which outputs, by changing them."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.exam import Exam
from eureka.doctor.view import View

PLACES = 6
"""Places that are changed, one pass each."""


def dependence(exam: Exam) -> tuple[list[int], Tensor] | None:
    """For some places j, how much the output at each place t changes when token j is changed, in evaluation mode: (places, T).

    None if the model is not given tokens, or does not answer at every one.
    """
    sequence, head = sequence_of(exam.view), exam.view.head
    if sequence is None or head is None or head.dim() != 3 or head.shape[:2] != sequence.shape[:2]:
        return None
    length = sequence.shape[1]
    places = sorted({round(i * (length - 1) / (PLACES - 1)) for i in range(PLACES)})
    plain = exam.peek().head
    rows = []
    for place in places:
        changed = exam.peek(inputs=lambda given, j=place: _changed(given, sequence, j)).head  # type: ignore[misc]
        if plain is None or changed is None or changed.shape != plain.shape:
            return None
        rows.append((changed.float() - plain.float()).abs().amax(dim=(0, 2)))
    return places, torch.stack(rows)


def sequence_of(view: View) -> Tensor | None:
    """The tokens or vectors that the model is given, (B, T) or (B, T, F)."""
    if view.tokens is not None:
        return view.tokens
    given = (one for one in (*view.inputs, *view.keywords.values()) if isinstance(one, Tensor))
    return next((one for one in given if one.dim() == 3 and one.is_floating_point()), None)


def is_same(one: object, sequence: Tensor) -> TypeGuard[Tensor]:
    """Whether an argument is that sequence, or a copy of it."""
    return isinstance(one, Tensor) and one.shape == sequence.shape and one.dtype == sequence.dtype and torch.equal(one, sequence)


def _changed(given: Any, sequence: Tensor, place: int) -> Any:
    """The same arguments with another token at one place of every row."""

    def change(one: Any) -> Any:
        if not is_same(one, sequence):
            return one
        other = one.clone()
        # another row's token at the same place: one that the data has
        rolled = one.roll(1, dims=0)[:, place]
        if one.is_floating_point():
            other[:, place] = rolled + one.float().std().to(one.dtype)
        else:
            top = int(one.max()) + 1
            other[:, place] = torch.where(rolled == one[:, place], (rolled + 1) % max(top, 2), rolled)
        return other

    return tree_map(change, given)


def sees_later(exam: Exam) -> bool:
    """Whether an output changes with a token that comes after it."""
    return leak(exam) is not None


def leak(exam: Exam) -> tuple[int, int] | None:
    """A token and an earlier place whose output changes with it; the pair with the greatest change."""
    found = exam.once(dependence)
    if found is None:
        return None
    places, changes = found
    later = torch.tensor([[t < j for t in range(changes.shape[1])] for j in places], device=changes.device)
    hidden = changes.where(later, 0.0)
    if float(hidden.max()) <= 1e-6 * max(float(changes.max()), 1e-12):
        return None
    row, t = divmod(int(hidden.argmax()), changes.shape[1])
    return places[row], t


def sees_itself(exam: Exam) -> bool:
    """Whether the output at a place changes with the token there."""
    found = exam.once(dependence)
    return found is not None and any(float(changes[place]) > 0 for place, changes in zip(*found, strict=True))
