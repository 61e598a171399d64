"""Does it see what it must, and nothing that it must not?"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from eureka.doctor.checks.targets import asked_offset
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import NOTHING, dependence, leak, unseen
from eureka.formats import percent

MOST = 0.5
"""Inputs of which more than this share is never seen."""


def check(exam: Exam) -> Iterator[Finding]:
    yield from _leak(exam)
    if not exam.well:
        yield from _blocked(exam)


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
            f"Changing token {token} changes the logits at token {place}, which is asked for token {place + offset}: the model"
            " can see what it is asked for.",
        ),
        advice="use a causal mask in every attention layer (is_causal=True), and no operation that mixes tokens otherwise.",
        numbers={"token": float(token), "place": float(place)},
    )


def _blocked(exam: Exam) -> Iterator[Finding]:
    """A mask is there before training: what training has cut off is not its fault, so fresh weights must see as little."""
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


def _cut_off(exam: Exam) -> str | None:
    told, share = _tokens_apart(exam), unseen(exam)
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
