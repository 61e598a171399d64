"""Does it see what it must, and nothing that it must not?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_map

from eureka.doctor.checks.targets import asked_offset, offset_on
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.padding import fill_of
from eureka.doctor.sight import (
    NOTHING,
    PLACES,
    answers_everywhere,
    crosstalk,
    dependence,
    dependence_on,
    is_same,
    leak,
    other_tokens,
    sequence_of,
    unseen,
    with_others,
)
from eureka.formats import percent
from eureka.patching.attach import find_sites

MOST = 0.5
"""Inputs of which more than this share is never seen."""


def check(exam: Exam) -> Iterator[Finding]:
    yield from _leak(exam)
    if not exam.well:
        yield from _blocked(exam)


def _leak(exam: Exam) -> Iterator[Finding]:
    offset, found = exam.once(asked_offset), leak(exam.once(dependence), _asked(exam))
    if offset is None or offset < 1 or found is None:
        offset, found = 1, _decoder_leak(exam)
    if found is None or not _in_its_row(exam, *found):
        return
    token, place = found
    what = "output" if exam.view.tokens is None else "logits"
    yield Finding(
        cause="future_leak",
        sure=0.96,
        explains=0.9,
        evidence=(
            f"Changing token {token} changes the {what} at token {place}, which is asked for token {place + offset}: the model"
            " can see what it is asked for.",
        ),
        advice="use a causal mask in every attention layer (is_causal=True), and no operation that mixes tokens otherwise.",
        numbers={"token": float(token), "place": float(place)},
    )


def _in_its_row(exam: Exam, token: int, place: int) -> bool:
    """Whether a token changes the output at that place of its own row; what samples do to each other is no leak."""
    plain, sequence = exam.peek().head, sequence_of(exam.view)
    if plain is None or sequence is None or plain.shape[:2] != sequence.shape[:2] or crosstalk(exam) == 0:
        return True
    rows = sorted({round(i * (len(sequence) - 1) / (PLACES - 1)) for i in range(PLACES)})
    for row in rows:
        here = torch.zeros(sequence.shape[:2], dtype=torch.bool, device=sequence.device)
        here[row, token] = True
        changed = exam.peek(inputs=lambda given, here=here: with_others(given, sequence, here)).head  # type: ignore[misc]
        if changed is None or changed.shape != plain.shape:
            return True
        moved = (changed[row].float() - plain[row].float()).abs().amax(dim=1)
        if float(moved[place]) > NOTHING * max(float(moved.max()), 1e-12):
            return True
    return False


def _asked(exam: Exam) -> torch.Tensor | None:
    """The places whose outputs the loss looks at, (T,): a prefix may be seen as a whole if nothing is asked there."""
    gradient = exam.head_gradient
    return gradient.abs().amax(dim=(0, 2)) > 0 if gradient is not None and gradient.dim() == 3 else None


def _decoder_leak(exam: Exam) -> tuple[int, int] | None:
    """The same for the second sequence of an encoder-decoder, if the loss asks for the next one of its tokens."""
    head = exam.view.head
    for tokens in exam.view.all_tokens[1:]:
        if head is not None and head.dim() == 3 and head.shape[:2] == tokens.shape and offset_on(exam, tokens) == 1:
            return leak(dependence_on(exam, tokens), _asked(exam))
    return None


def _blocked(exam: Exam) -> Iterator[Finding]:
    """A mask is there before training: what training has cut off is not its fault, so fresh weights must see as little."""
    if not _attends(exam):
        return
    told = _cut_off(exam)
    if told is None or _cut_off(exam.anew) is None:
        return
    yield Finding(
        cause="mask_blocks_context",
        sure=0.93,
        explains=0.95,
        evidence=(f"{told[0].upper()}{told[1:]}.",),
        advice="look at the attention mask: True and False may be exchanged (in PyTorch's SDPA True means: may be seen; in"
        " nn.MultiheadAttention True means: is hidden).",
    )


def _attends(exam: Exam) -> bool:
    """Whether attention is computed at all: a model that takes every token for itself has no mask."""
    return bool(exam.view.attentions or exam.view.softmaxes or find_sites(exam.glass.model).sites)


def _cut_off(exam: Exam) -> str | None:
    told, share = _tokens_apart(exam) or _tokens_unheard(exam), unseen(exam)
    if told is None and share is not None and share > MOST:
        return f"{percent(share, 0)} of the numbers that the model is given change no output of any sample"
    return told


def _tokens_apart(exam: Exam) -> str | None:
    """Hardly any token changes the output at another place (a later one, where the loss asks for the next token)."""
    found = exam.once(dependence)
    if found is None or found[1].shape[1] < 3 or not float(found[1].max()):
        return None
    places, changes = found
    asked = exam.once(asked_offset) is not None
    rows = [(j, row) for j, row in zip(places, changes, strict=True) if not asked or j < changes.shape[1] - 1]
    heard = [j for j, row in rows if float(_others(row, j, later=asked).max()) > NOTHING * float(changes.max())]
    if len(heard) > len(rows) / 3:
        return None
    which = f"only {', '.join(map(str, heard))} changes" if heard else "none of them changes"
    return (
        f"tokens {', '.join(str(j) for j, _ in rows)} were changed one by one: {which} the output at any"
        f" {'later' if asked else 'other'} place"
    )


def _others(row: torch.Tensor, place: int, *, later: bool) -> torch.Tensor:
    return row[place + 1 :] if later else torch.cat([row[:place], row[place + 1 :]])


def _tokens_unheard(exam: Exam) -> str | None:
    """Where the model gives one answer for all tokens: hardly any of them changes it. Padding is left as it is.

    Where there is none, and no token changes anything, what the model is given is lost: a mask is not to blame.
    """
    tokens, fill, plain = exam.view.tokens, exam.once(fill_of), exam.peek().head
    if tokens is None or plain is None or answers_everywhere(exam) or tokens.shape[1] < 3:
        return None
    real = torch.ones_like(tokens, dtype=torch.bool) if fill is None else ~fill.where
    columns = [j for j in range(tokens.shape[1]) if bool(real[:, j].any())]
    places = sorted({columns[round(i * (len(columns) - 1) / (PLACES - 1))] for i in range(PLACES)})
    heard = [j for j in places if _changes(exam, tokens, real, j, plain)]
    if len(places) < 3 or (not heard and fill is None) or len(heard) > len(places) / 3:
        return None
    which = f"only {', '.join(map(str, heard))} changes" if heard else "none of them changes"
    return f"tokens {', '.join(map(str, places))} were changed one by one, where they are no padding: {which} the output"


def _changes(exam: Exam, tokens: torch.Tensor, real: torch.Tensor, place: int, plain: torch.Tensor) -> bool:
    """Whether the output changes when the tokens at a place become others that the data has."""
    here = torch.zeros_like(real)
    here[:, place] = real[:, place]
    other = other_tokens(tokens, here, known=real)
    changed = exam.peek(inputs=lambda given: tree_map(lambda one: other if is_same(one, tokens) else one, given)).head
    if changed is None or changed.shape != plain.shape:
        return True
    return float((changed.float() - plain.float()).abs().max()) > NOTHING * max(float(plain.float().abs().max()), 1e-12)
