"""Does padding count? Tokens that a mask tells apart are changed, rows are cut, and the places that the loss asks are seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.padding import Fill, Mask, fill_of, is_constant, mask_of
from eureka.doctor.sight import is_same, sequence_of, with_others
from eureka.formats import number, percent

TOUCHED = 1e-3
"""Outputs that change by less than this share of their spread have not changed."""
MANY = 0.15
"""More labels than this share on padding spoil the loss."""

Probe = Callable[[Exam, Tensor, Tensor], Tensor | None]
"""The outputs when the tokens at these places are others."""


def check(exam: Exam) -> Iterator[Finding]:
    fill, mask = exam.once(fill_of), exam.once(mask_of)
    if fill is not None:
        yield from _counted(exam, fill)
    if mask is not None:
        yield from _unmasked(exam, mask)
    elif fill is not None and fill.trailing:
        yield from _uncut(exam, fill)


def _counted(exam: Exam, fill: Fill) -> Iterator[Finding]:
    """Where the loss asks for something: on padding, or on nothing else."""
    gradient = exam.head_gradient
    if gradient is None or gradient.dim() != 3 or gradient.shape[:2] != fill.where.shape:
        return
    asked = gradient.abs().amax(dim=2) > 0
    if not bool(asked.any()):
        return
    share = float((asked & fill.where).sum() / asked.sum())
    before = torch.cat([fill.where[:, 1:], fill.where[:, -1:]], dim=1) & ~fill.where  # it may be asked to end the row
    alone = not bool((asked & ~fill.where & ~before).any())
    if share < MANY:
        return
    told = f"{percent(share, 0)} of the places that the loss asks are padding (token {fill.token})"
    if alone:
        yield Finding(
            cause="labels_ignored",
            sure=0.95,
            explains=0.97,
            evidence=(f"{told}: real tokens hardly count.",),
            advice="ignore the labels of the padding, not those of the tokens: labels[padding] = -100.",
            numbers={"share": share},
        )
    else:
        yield _used(
            f"{told}: the loss falls with every token of padding that is foretold.", 0.5 + share / 2, "labels[padding] = -100"
        )


def _unmasked(exam: Exam, mask: Mask) -> Iterator[Finding]:
    """A mask in the batch tells tokens apart; whichever of the two kinds are changed, the outputs at the others change."""
    sequence = sequence_of(exam.view)
    assert sequence is not None
    inner = torch.zeros_like(mask.where)
    inner[:, 1:-1] = True  # an answer may be read from the first or the last token, whether or not it is padding
    kinds = (mask.where, ~mask.where)
    change = _embedded if any(is_constant(where, sequence) for where in kinds) else _given
    effects = [_effect(exam, sequence, where & inner, change) for where in kinds]
    if None in effects or min(effect or 0.0 for effect in effects) < TOUCHED:
        return
    least = min(effect or 0.0 for effect in effects)
    what = "a mask that tells tokens apart" if mask.named else "zeros and ones that look like a mask of padding"
    yield _used(
        f"The batch has {what}, and each of the two kinds changes the outputs at the other (by up to"
        f" {number(least)} of their spread): none is hidden.",
        0.9,
        sure=0.93 if mask.named else 0.75,
    )


def _effect(exam: Exam, sequence: Tensor, where: Tensor, change: Probe) -> float | None:
    """How much the outputs change, by their spread, when these tokens are changed; at the other places, if each has an output."""
    plain, changed = exam.peek().head, change(exam, sequence, where)
    if plain is None or changed is None or plain.shape != changed.shape:
        return None
    difference, spread = (changed.float() - plain.float()).abs(), float(plain.float().std())
    if difference.dim() == 3 and difference.shape[:2] == where.shape:
        difference = difference[~where]
    return float(difference.max()) / spread if spread and difference.numel() else 0.0


def _given(exam: Exam, sequence: Tensor, where: Tensor) -> Tensor | None:
    """The outputs with other tokens there."""
    return exam.peek(inputs=lambda given: with_others(given, sequence, where)).head


def _embedded(exam: Exam, sequence: Tensor, where: Tensor) -> Tensor | None:
    """The outputs with the same tokens, embedded as others there: a model may find out by itself which token is padding.

    None if the tokens are not embedded by a module.
    """
    changed = list[bool]()

    def embed(_module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        if not args or not is_same(args[0], sequence) or not isinstance(output, Tensor) or output.shape[:2] != where.shape:
            return output
        changed.append(True)
        other = output.roll(1, dims=0) + output.float().std().to(output.dtype)
        return torch.where(where[..., None], other, output)

    handles = [one.register_forward_hook(embed) for one in exam.glass.model.modules() if isinstance(one, nn.Embedding)]
    try:
        head = exam.peek().head
    finally:
        for handle in handles:
            handle.remove()
    return head if changed else None


def _uncut(exam: Exam, fill: Fill) -> Iterator[Finding]:
    """The same rows with less padding give the same outputs, if padding is hidden."""
    lengths = (~fill.where).sum(dim=1)
    cut = int(lengths.median())
    rows = lengths <= cut
    if cut >= fill.where.shape[1] or cut < 2:
        return
    plain = exam.peek().head
    shorter = exam.peek(inputs=lambda given: tree_map(lambda one: _cut(one, fill.where.shape, cut), given), whole=False).head
    if plain is None or shorter is None or plain.dim() != shorter.dim() or len(plain) != len(shorter):
        return
    if plain.dim() == 3:
        real = ~fill.where[rows][:, :cut]
        plain, shorter = plain[rows][:, :cut][real], shorter[rows][:, :cut][real]
    else:
        plain, shorter = plain[rows], shorter[rows]
    spread = float(plain.float().std())
    if plain.shape != shorter.shape or not spread:
        return
    change = float((plain.float() - shorter.float()).abs().max()) / spread
    if change > TOUCHED:
        yield _used(
            f"{percent(fill.share, 0)} of the tokens are padding (token {fill.token}); with less of it the outputs of the same"
            f" rows change by up to {number(change)} of their spread.",
            min(0.9, 0.3 + fill.share + min(change, 0.4)),
        )


def _cut(one: Any, shape: torch.Size, width: int) -> Any:
    return one[:, :width] if isinstance(one, Tensor) and one.shape[:2] == shape else one


def _used(evidence: str, explains: float, code: str = "", sure: float = 0.93) -> Finding:
    return Finding(
        cause="padding_used",
        sure=sure,
        explains=explains,
        evidence=(evidence,),
        advice="pass the padding mask to the attention (attention_mask, key_padding_mask or attn_mask), and ignore its labels.",
        code=code,
    )
