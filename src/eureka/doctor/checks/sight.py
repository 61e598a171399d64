"""Does it see what it must, and nothing that it must not?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from eureka.doctor.checks.targets import asked_offset
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import dependence, is_same, leak, sequence_of
from eureka.formats import number, percent


def check(exam: Exam) -> Iterator[Finding]:
    yield from _leak(exam)
    yield from _blocked(exam)
    yield from _padding(exam)


def _leak(exam: Exam) -> Iterator[Finding]:
    offset, found = exam.once(asked_offset), leak(exam)
    if offset is None or offset < 1 or found is None:
        return
    token, place = found
    yield Finding(
        cause="future_leak",
        sure=0.96,
        explains=0.9,
        evidence=(
            f"Changing token {token} changes the logits at token {place}, which is asked for token {place + offset}: the model can"
            " see what it is asked for.",
        ),
        advice="use a causal mask in every attention layer (is_causal=True), and no operation that mixes tokens otherwise.",
        numbers={"token": float(token), "place": float(place)},
    )


def _blocked(exam: Exam) -> Iterator[Finding]:
    """No output changes with any token but its own (and perhaps later ones)."""
    found = exam.once(dependence)
    if found is None or found[1].shape[1] < 3:
        return
    places, changes = found
    own = torch.tensor([[t == j for t in range(changes.shape[1])] for j in places], device=changes.device)
    earlier = torch.tensor([[t > j for t in range(changes.shape[1])] for j in places], device=changes.device)
    top = float(changes.max())
    if top <= 0 or exam.learning:
        return
    others, before = float(changes.where(~own, 0.0).max()), float(changes.where(earlier, 0.0).max())
    if others <= 1e-6 * top:
        told = "no output changes with any other token than its own"
    elif before <= 1e-6 * top and exam.once(asked_offset) is not None:
        told = "no output changes with any earlier token"
    else:
        return
    yield Finding(
        cause="mask_blocks_context",
        sure=0.95,
        explains=0.95,
        evidence=(f"Tokens {', '.join(map(str, places))} were changed one by one: {told}.",),
        advice="look at the attention mask: True and False may be exchanged (in PyTorch's SDPA True means: may be seen; in"
        " nn.MultiheadAttention True means: is hidden).",
    )


def _padding(exam: Exam) -> Iterator[Finding]:
    sequence = sequence_of(exam.view)
    real = _real_places(exam, sequence)
    if sequence is None or real is None or bool(real.all()) or not bool(real.any()):
        return
    plain = exam.peek().head
    changed = exam.peek(inputs=lambda given: tree_map(lambda one: _other_padding(one, sequence, real), given)).head
    if plain is None or changed is None or plain.shape != changed.shape:
        return
    difference = (changed.float() - plain.float()).abs()
    if difference.dim() == 3 and difference.shape[:2] == real.shape:
        difference = difference[real]
    scale = float(plain.float().std())
    share = float(difference.max()) / scale if scale else 0.0
    if share < 1e-4:
        return
    hidden = float((~real).float().mean())
    yield Finding(
        cause="padding_used",
        sure=0.93,
        explains=min(0.9, 0.3 + hidden + min(share, 0.4)),
        evidence=(
            f"{percent(hidden)} of the tokens are padding, and changing them changes the outputs of real tokens by up to"
            f" {number(share)} of the outputs' spread.",
        ),
        advice="pass the padding mask to the attention (attention_mask, key_padding_mask or attn_mask).",
        numbers={"padding": hidden, "change": share},
    )


def _real_places(exam: Exam, sequence: Tensor | None) -> Tensor | None:
    """Where a row has real tokens, by a mask among the batch's tensors or by a token that only fills the ends of rows."""
    if sequence is None:
        return None
    shape = sequence.shape[:2]
    for one in _tensors(exam):
        if one.shape == shape and one is not sequence and _is_mask(one):
            mask = one.bool() if one.dtype != torch.bool else one
            ends = mask[:, -1] if bool((~mask[:, -1]).any()) else mask[:, 0]
            return mask if bool((~ends).any()) and float(mask.float().mean()) >= 0.2 else ~mask
    if sequence.dim() != 2:
        return None
    for token in sequence[:, -1].unique().tolist():
        here = sequence == token
        trailing = here.flip(1).cumprod(dim=1).flip(1).bool()
        if torch.equal(here, trailing) and int(trailing[:, -1].sum()) >= 2 and int(trailing.sum()) >= 2 * len(sequence):
            return ~here
    return None


def _tensors(exam: Exam) -> list[Tensor]:
    leaves = tree_leaves((exam.view.inputs, dict(exam.view.keywords), exam.case.batches[0]))
    return [one for one in leaves if isinstance(one, Tensor)]


def _is_mask(one: Tensor) -> bool:
    """Zeros and ones, changing once along a row."""
    if one.dtype != torch.bool and not bool(((one == 0) | (one == 1)).all()):
        return False
    mask = one.bool()
    changes = (mask[:, 1:] != mask[:, :-1]).sum(dim=1)
    return bool((changes <= 1).all() and (changes == 1).any())


def _other_padding(one: object, sequence: Tensor, real: Tensor) -> object:
    """The same tokens where they are real, others where they are padding."""
    if not is_same(one, sequence):
        return one
    other = one.clone()
    if one.is_floating_point():
        other[~real] = one[~real] + 3 * one.float().std().to(one.dtype)
    else:
        other[~real] = (one[~real] + 1 + torch.arange(int((~real).sum()), device=one.device) % 2) % max(int(one.max()) + 1, 3)
    return other
