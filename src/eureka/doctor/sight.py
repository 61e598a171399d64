"""What a model sees: which inputs change which outputs, by changing them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.doctor.exam import Exam
from eureka.doctor.view import View

PLACES = 6
"""Places that are changed, one pass each."""
NOTHING = 1e-6
"""Changes below this share of the greatest one are rounding."""


def sequence_of(view: View) -> Tensor | None:
    """The tokens or vectors that the model is given, (B, T) or (B, T, F)."""
    if view.tokens is not None:
        return view.tokens
    given = (one for one in (*view.inputs, *view.keywords.values()) if isinstance(one, Tensor))
    return next((one for one in given if one.dim() == 3 and one.is_floating_point()), None)


def is_same(one: object, sequence: Tensor) -> TypeGuard[Tensor]:
    """Whether an argument is that sequence, or a copy of it."""
    return isinstance(one, Tensor) and one.shape == sequence.shape and one.dtype == sequence.dtype and torch.equal(one, sequence)


def answers_everywhere(exam: Exam) -> bool:
    """Whether there is an output for every token."""
    sequence, head = sequence_of(exam.view), exam.view.head
    return sequence is not None and head is not None and head.dim() == 3 and head.shape[:2] == sequence.shape[:2]


def dependence(exam: Exam) -> tuple[list[int], Tensor] | None:
    """For some places j, how much the output at each place t changes when token j is changed, in evaluation mode: (places, T).

    None if the model is not given tokens, or does not answer at every one.
    """
    sequence = sequence_of(exam.view)
    return None if sequence is None or not answers_everywhere(exam) else dependence_on(exam, sequence)


def dependence_on(exam: Exam, sequence: Tensor) -> tuple[list[int], Tensor] | None:
    """The same for any of the sequences that the model is given."""
    length = sequence.shape[1]
    places = sorted({round(i * (length - 1) / (PLACES - 1)) for i in range(PLACES)})
    plain, again = exam.peek().head, exam.peek().head
    if plain is None or again is None or not torch.equal(plain, again):  # it draws numbers of its own
        return None
    rows = []
    for place in places:
        here = torch.zeros(sequence.shape[:2], dtype=torch.bool, device=sequence.device)
        here[:, place] = True
        changed = exam.peek(inputs=lambda given, here=here: with_others(given, sequence, here)).head  # type: ignore[misc]
        if changed is None or changed.shape != plain.shape:
            return None
        rows.append((changed.float() - plain.float()).abs().amax(dim=(0, 2)))
    return places, torch.stack(rows)


def with_others(given: Any, sequence: Tensor, where: Tensor) -> Any:
    """The same arguments with other tokens at these places: those of the row before, or others that the data has."""

    def change(one: Any) -> Any:
        if not is_same(one, sequence):
            return one
        rolled = one.roll(1, dims=0)
        if one.is_floating_point():
            other = rolled + one.float().std().to(one.dtype)
        else:
            top = int(one.max()) + 1
            other = torch.where(rolled == one, (rolled + 1) % max(top, 2), rolled)
        return torch.where(where if one.dim() == 2 else where[..., None], other, one)

    return tree_map(change, given)


def other_tokens(tokens: Tensor, where: Tensor, known: Tensor | None = None) -> Tensor:
    """Other tokens at these places; of those that are at `known` places, or at the same."""
    values = torch.unique(tokens[where if known is None else known])
    here = torch.searchsorted(values, tokens).clamp_max(len(values) - 1)
    return torch.where(where, values[(here + 1) % len(values)], tokens)


def sees_later(exam: Exam) -> bool:
    """Whether an output changes with a token that comes after it."""
    return leak(exam.once(dependence)) is not None


def sees_earlier(exam: Exam) -> bool:
    """Whether outputs change with the tokens that come before them: with more than a third of those that were changed."""
    found = exam.once(dependence)
    if found is None:
        return False
    places, least = found[0][:-1], NOTHING * float(found[1].max())  # nothing comes after the last
    heard = [bool((changes[place + 1 :] > least).any()) for place, changes in zip(places, found[1], strict=False)]
    return sum(heard) > len(heard) / 3


def leak(found: tuple[list[int], Tensor] | None, asked: Tensor | None = None) -> tuple[int, int] | None:
    """A token and an earlier place whose output changes with it; the pair with the greatest change.

    found   what `dependence` gives
    asked   the places whose outputs the loss looks at, (T,); all if None
    """
    if found is None:
        return None
    places, changes = found
    later = torch.tensor([[t < j for t in range(changes.shape[1])] for j in places], device=changes.device)
    hidden = changes.where(later if asked is None else later & asked, 0.0)
    if float(hidden.max()) <= NOTHING * max(float(changes.max()), 1e-12):
        return None
    row, t = divmod(int(hidden.argmax()), changes.shape[1])
    return places[row], t


def sees_itself(exam: Exam) -> bool:
    """Whether the output at a place changes with the token there."""
    found = exam.once(dependence)
    return found is not None and any(float(changes[place]) > 0 for place, changes in zip(*found, strict=True))


def unseen(exam: Exam) -> float | None:
    """The share of the numbers in a float input that change no output of any sample.

    None if the model has no such input, or if the gradient does not tell, as where the graph is cut.
    """
    kept: list[Tensor] = []
    gradients: list[Tensor | None] = []

    def ask(one: Any) -> Any:
        if kept or not isinstance(one, Tensor) or not one.is_floating_point() or one.dim() < 3:
            return one
        kept.append(one.detach().clone().requires_grad_())
        return kept[0]

    def look(head: Tensor) -> Tensor:
        if kept and head.requires_grad:
            weights = torch.randn(head.shape, generator=torch.Generator().manual_seed(0)).to(head)
            gradients.extend(torch.autograd.grad((head * weights).sum(), kept, retain_graph=True, allow_unused=True))
        return head

    exam.peek(look, lambda given: tree_map(ask, given), gradients=True)
    if not kept:
        return None
    gradient = gradients[0] if gradients else None
    size = torch.zeros_like(kept[0][0]) if gradient is None else gradient.abs().amax(dim=0)
    hidden = size <= NOTHING * size.max()
    return None if _is_heard(exam, kept[0], hidden) else float(hidden.float().mean())


def _is_heard(exam: Exam, given: Tensor, where: Tensor) -> bool:
    """Whether an output changes when these numbers of an input do."""

    def change(one: Any) -> Any:
        return torch.where(where, one.roll(1, dims=0), one) if is_same(one, given) else one

    plain, changed = exam.peek().head, exam.peek(inputs=lambda given: tree_map(change, given)).head
    if plain is None or changed is None or plain.shape != changed.shape:
        return False
    return float((changed.float() - plain.float()).abs().max()) > NOTHING * float(plain.float().abs().max())


def crosstalk(exam: Exam) -> float:
    """How much other samples change in some layer when one sample is changed, by its own change there, in evaluation mode."""
    size = len(exam.view.head) if exam.view.head is not None and exam.view.head.dim() > 1 else 0
    if size < 3:
        return 0.0
    plain, again = _layers(exam, size, lambda one: one), _layers(exam, size, lambda one: one)
    if any(not torch.equal(a, b) for a, b in zip(plain, again, strict=False)):
        return 0.0  # the model draws numbers of its own: nothing can be compared
    changed = _layers(exam, size, lambda one: _first_changed(one, size))
    return max((_heard(a, b) for a, b in zip(plain, changed, strict=False) if a.shape == b.shape), default=0.0)


def _layers(exam: Exam, size: int, change: Callable[[Any], Any]) -> list[Tensor]:
    """What the modules give, in the order of the calls, a row a sample."""
    found: list[Tensor] = []

    def keep(_module: Any, _args: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) and output else output
        if not isinstance(output, Tensor) or not output.is_floating_point() or output.dim() < 2 or len(output) != size:
            return
        if output.shape != (size, size):  # a table of all pairs of samples, as contrastive losses compare them
            found.append(output.detach())

    handles = [module.register_forward_hook(keep) for module in exam.glass.model.modules()]
    try:
        exam.peek(inputs=lambda given: tree_map(change, given))
    finally:
        for handle in handles:
            handle.remove()
    return found


def _heard(plain: Tensor, changed: Tensor) -> float:
    moved = (changed.float() - plain.float()).abs().flatten(1).amax(dim=1)
    scale = max(float(moved[0]), 1e-3 * float(plain.float().abs().max()))
    return float(moved[1:].max()) / scale if scale > 0 else 0.0


def _first_changed(one: Any, size: int) -> Any:
    """The first sample is replaced by the last."""
    if not isinstance(one, Tensor) or one.dim() < 2 or len(one) != size:
        return one
    other = one.clone()
    other[0] = one[-1]
    return other
