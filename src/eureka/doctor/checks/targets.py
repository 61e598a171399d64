"""Which answer does the loss ask for? The head's output is replaced by answers that are right for other questions.

For a model of tokens the logits at place t are set to name the token at t + k: the k with the least loss is what is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.padding import fill_of
from eureka.doctor.sight import sees_itself, sees_later
from eureka.formats import percent, plural

SURE_OF_IT = 12.0
"""The logit of the named token."""
OFFSETS = range(-2, 4)


def check(exam: Exam) -> Iterator[Finding]:
    yield from _misaligned(exam)
    yield from _ignored(exam)


def asked_offset(exam: Exam) -> int | None:
    """How far ahead of its own place the loss asks for a token; None if it asks for something else."""
    tokens, head = exam.view.tokens, exam.view.head
    if tokens is None or head is None or head.dim() != 3 or head.shape[:2] != tokens.shape or tokens.shape[1] < 4:
        return None
    if int(tokens.max()) >= head.shape[2]:
        return None
    plain = _loss(exam, lambda output: torch.zeros_like(output))
    losses = {offset: _loss(exam, lambda output, k=offset: _naming(tokens, k, output)) for offset in OFFSETS}
    best = min(losses, key=losses.__getitem__)
    return best if losses[best] < 0.6 * plain else None


def _loss(exam: Exam, replace: object) -> float:
    loss = exam.peek(replace).loss  # type: ignore[arg-type]
    assert loss is not None
    return float(loss)


def _naming(tokens: Tensor, offset: int, output: Tensor) -> Tensor:
    """Logits that name, at each place, the token so many places on; nothing where there is none."""
    logits, places = torch.zeros_like(output), tokens.shape[1]
    start, stop = max(0, -offset), min(places, places - offset)
    named = F.one_hot(tokens[:, start + offset : stop + offset].long(), output.shape[2]).to(output.dtype)
    logits[:, start:stop] = SURE_OF_IT * named
    return logits


def _misaligned(exam: Exam) -> Iterator[Finding]:
    offset = exam.once(asked_offset)
    if offset is None or sees_later(exam):  # a model that sees what comes later may be asked for any place
        return
    if offset == 1 or (offset <= 0 and not sees_itself(exam)):
        return
    what = {0: "the token at that place itself, which the model sees", 2: "the token two places on: labels are shifted twice"}
    told = what.get(offset, f"the token {plural(abs(offset), 'place')} {'on' if offset > 0 else 'back'}")
    yield Finding(
        cause="labels_misaligned",
        sure=0.95,
        explains=0.95,
        evidence=(f"A causal model is asked at every place for {told}; answers that name the next token do not lower the loss.",),
        advice="shift labels exactly once: logits[:, :-1] against tokens[:, 1:]. Hugging Face's models shift them themselves.",
        numbers={"offset": float(offset)},
    )


def _ignored(exam: Exam) -> Iterator[Finding]:
    call = next((one for one in exam.view.losses if one.name in ("cross_entropy", "nll_loss")), None)
    if call is None or call.target.is_floating_point():
        return
    target = call.target.detach().flatten()
    index, weights = int(call.settings.get("ignore_index", -100)), call.settings.get("weight")
    dropped = target == index
    told = f"Label {index} is ignored (ignore_index={index}) though it is a class"
    if not bool(dropped.any()) and isinstance(weights, Tensor):
        dropped = (weights == 0)[target.clamp_min(0)] & (target >= 0)
        told = "The loss gives a weight of 0 to a class"
    elif index < 0 or index >= (exam.classes or 0) or _fills(exam, index, target):
        return
    share = float(dropped.float().mean())
    if not share:
        return
    yield Finding(
        cause="labels_ignored",
        sure=0.95 if share > 0.02 else 0.6,
        explains=min(1.0, 0.5 + share),
        evidence=(f"{told}: {percent(share)} of the labels ({int(dropped.sum()):,} of {len(target):,} in a batch) never count.",),
        advice="mark labels that do not matter with -100, the default of ignore_index, and no class.",
        numbers={"share": share},
    )


def _fills(exam: Exam, token: int, target: Tensor) -> bool:
    """Whether labels are tokens, and this one only fills the ends of rows, as padding does."""
    fill, tokens = exam.once(fill_of), exam.view.tokens
    return fill is not None and tokens is not None and fill.token == token and 2 * len(target) > tokens.numel()
