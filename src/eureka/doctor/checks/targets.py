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
from eureka.doctor.sight import NOTHING, sees_earlier, sees_itself, sees_later, sequence_of
from eureka.doctor.view import LossCall
from eureka.formats import percent, plural

SURE_OF_IT = 12.0
"""The logit of the named token."""
OFFSETS = range(-2, 4)
MARKED = "mark labels that do not matter with -100, the default of ignore_index, and only those."
SHIFTED = "logits[:, :-1] against tokens[:, 1:]. Hugging Face's models shift them themselves."
REGRESSIONS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")
MOST, FEW = 0.05, 3
"""Classes that never count are worth a word if they are this share of the labels, and each occurs so often."""


def check(exam: Exam) -> Iterator[Finding]:
    if exam.finite:
        yield from _misaligned(exam)
    yield from _ignored(exam)


def asked_offset(exam: Exam) -> int | None:
    """How far ahead of its own place the loss asks for a token or a value; None if it asks for something else."""
    tokens = exam.view.tokens
    return _offset_of_values(exam) if tokens is None else offset_on(exam, tokens)


def offset_on(exam: Exam, tokens: Tensor) -> int | None:
    """The same for any of the sequences of tokens that the model is given."""
    head = exam.view.head
    if head is None or head.dim() != 3 or head.shape[:2] != tokens.shape or tokens.shape[1] < 4:
        return None
    if int(tokens.min()) < 0 or int(tokens.max()) >= head.shape[2]:
        return None
    plain = _loss(exam, lambda output: torch.zeros_like(output))
    losses = {offset: _loss(exam, lambda output, k=offset: _naming(tokens, k, output)) for offset in OFFSETS}
    best = min(losses, key=losses.__getitem__)
    return best if losses[best] < 0.6 * plain else None


def _offset_of_values(exam: Exam) -> int | None:
    """For a series of numbers: how many places on the target is found in the input."""
    sequence, call = sequence_of(exam.view), next((one for one in exam.view.losses if one.name in REGRESSIONS), None)
    if sequence is None or call is None or call.target.dim() != 3 or call.target.shape[:2] != sequence.shape[:2]:
        return None
    given, target, length = sequence.detach().float(), call.target.detach().float(), sequence.shape[1]
    if target.shape[2] > given.shape[2] or length < 4:
        return None
    for offset in OFFSETS:
        start, stop = max(0, -offset), min(length, length - offset)
        there = given[:, start + offset : stop + offset, : target.shape[2]]
        if float((there - target[:, start:stop]).abs().max()) <= 1e-5 * float(target.abs().max()):
            return offset
    return None


def _loss(exam: Exam, replace: object) -> float:
    loss = exam.peek(replace).loss_on_inputs  # type: ignore[arg-type]
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
    if offset is None or sees_later(exam) or not sees_earlier(exam):  # only a causal model may not be asked for any place
        return
    if offset == 1 or (offset <= 0 and not sees_itself(exam)) or (offset and _meant(exam)):
        return
    values = exam.view.tokens is None
    what = {0: "what is at that place itself, which the model sees", 2: "what is two places on: labels are shifted twice"}
    told = what.get(offset, f"what is {plural(abs(offset), 'place')} {'on' if offset > 0 else 'back'}")
    if values and offset > 0:
        told = f"the value {plural(offset, 'place')} on"
    one, shifted = ("value", "outputs[:, :-1] against inputs[:, 1:].") if values else ("token", SHIFTED)
    doubt = "" if _surely(exam, offset) > 0.9 else f"unless you mean to ask for the {one} {plural(abs(offset), 'place')} away, "
    yield Finding(
        cause="labels_misaligned",
        sure=_surely(exam, offset),
        explains=0.95,
        evidence=(f"A causal model is asked at every place for {told}; answers that name the next {one} do not lower the loss.",),
        advice=f"{doubt}shift labels exactly once: {shifted}",
        numbers={"offset": float(offset)},
    )


def _meant(exam: Exam) -> bool:
    """Whether places away are asked for on purpose: numbers or what is past, and it is learned; or the next token too."""
    offset, tokens = exam.once(asked_offset) or 0, exam.view.tokens
    if tokens is None or offset < 0:
        return exam.well or exam.learning
    return any(_asks_next(call.target, tokens) for call in exam.view.losses)


def _asks_next(target: Tensor, tokens: Tensor) -> bool:
    """Whether one of several losses asks for the next token, as a first head does where the second asks for the one after it."""
    if target.is_floating_point() or target.numel() not in (tokens.numel(), tokens[:, 1:].numel()):
        return False
    asked, then = target.detach().reshape(len(tokens), -1)[:, : tokens.shape[1] - 1], tokens[:, 1:]
    counts = asked >= 0
    return bool(counts.any()) and torch.equal(asked[counts], then.to(asked.dtype)[counts])


def _surely(exam: Exam, offset: int) -> float:
    """Tokens at their own place are never meant, and hardly those two places on; others may be a task."""
    if offset == 0:
        return 0.95
    return 0.6 if offset < 0 or exam.view.tokens is None else 0.7 if exam.well else 0.85


def _ignored(exam: Exam) -> Iterator[Finding]:
    call = next((one for one in exam.view.losses if one.name in ("cross_entropy", "nll_loss")), None)
    if call is None or call.target.is_floating_point():
        return
    target, index = call.target.detach().flatten(), int(call.settings.get("ignore_index", -100))
    found = _by_index(exam, target, index) or _by_gradient(exam, call, index) or _masked_ones(exam, target, index)
    if found is None:
        return
    told, share, advice = found
    yield Finding(
        cause="labels_ignored",
        sure=0.95 if share > 0.02 else 0.6,
        explains=min(1.0, 0.5 + share),
        evidence=(
            f"{told}: {percent(share)} of the labels ({round(share * len(target)):,} of {len(target):,} in a batch) never count.",
        ),
        advice=advice,
        numbers={"share": share},
    )


def _by_index(exam: Exam, target: Tensor, index: int) -> tuple[str, float, str] | None:
    """All labels are ignored, or those of a class."""
    dropped = target == index
    if bool(dropped.all()):
        return f"Every label of a batch is {index}, which is ignored (ignore_index={index})", 1.0, MARKED
    if not bool(dropped.any()) or index < 0 or index >= (exam.classes or 0) or _fills(exam, index, target):
        return None
    return f"Label {index} is ignored (ignore_index={index}) though it is a class", float(dropped.float().mean()), MARKED


def _by_gradient(exam: Exam, call: LossCall, index: int) -> tuple[str, float, str] | None:
    """Classes whose answers get no gradient wherever they are right: by a weight of 0, or by a mask of the user's own."""
    gradient, target = exam.head_gradient if exam.finite else None, call.target.detach().flatten()
    if gradient is None or gradient.dim() < 2 or gradient.shape[:-1].numel() != len(target) or _is_low(exam):
        return None
    counts = gradient.reshape(len(target), -1).abs().amax(dim=1) > 0
    classes = [int(one) for one in torch.unique(target) if int(one) != index and int(one) >= 0]
    asked = target.masked_fill(_surely_answered(call), index)  # those have no gradient either
    never = [one for one in classes if int((asked == one).sum()) >= FEW and not bool(counts[asked == one].any())]
    never = [one for one in never if not _fills(exam, one, target)]
    share = float(torch.isin(target, target.new_tensor(never)).float().mean()) if never else 0.0
    if share < MOST or len(never) == len(classes):
        return None
    return (
        f"The answers to {plural(len(never), 'class', 'classes')} ({_first(never)}) get no gradient",
        share,
        ("look at the mask and the class weights of your loss: they drop classes that occur."),
    )


def _surely_answered(call: LossCall) -> Tensor:
    """Where the answer is right, and so sure that nothing is left to learn."""
    given, target = call.given.detach().float(), call.target.detach().flatten()
    if given.dim() == 1:
        given = given[None]
    rows = given.movedim(1, -1).reshape(-1, given.shape[1]).log_softmax(dim=1)
    return rows.gather(1, target.clamp_min(0)[:, None])[:, 0] > -NOTHING


def _masked_ones(exam: Exam, target: Tensor, index: int) -> tuple[str, float, str] | None:
    """Labels count only where the model is given the answer, and are ignored wherever one token stands in for it."""
    tokens = exam.view.tokens
    if tokens is None or tokens.numel() != len(target) or exam.once(asked_offset) != 0 or not sees_later(exam):
        return None
    asked, given = target != index, tokens.flatten()
    hidden, counts = torch.unique(given[~asked], return_counts=True)
    if not len(hidden) or not torch.equal(given[asked], target[asked]):
        return None
    mask, share = int(hidden[counts.argmax()]), float(counts.max() / counts.sum())
    if share < 0.8 or bool((given[asked] == mask).any()) or _fills(exam, mask, target):
        return None
    told = f"The loss asks only for tokens that the model is given, and for none that token {mask} hides"
    advice = f"exchange them: labels count where the input is token {mask}, and are -100 where the model is given the token."
    return told, float((~asked).float().mean()), advice


def _is_low(exam: Exam) -> bool:
    """A loss near zero: answers that are sure have no gradient either."""
    return exam.chance is not None and exam.level < 0.1 * exam.chance


def _first(classes: list[int]) -> str:
    return ", ".join(map(str, classes[:5])) + (", …" if len(classes) > 5 else "")


def _fills(exam: Exam, token: int, target: Tensor) -> bool:
    """Whether labels are tokens, and this one only fills the ends of rows, as padding does."""
    fill, tokens = exam.once(fill_of), exam.view.tokens
    if tokens is None:
        return False
    if fill is not None and fill.token == token and 2 * len(target) > tokens.numel():
        return True
    return any(
        len(target) % rows == 0 and _ends_rows((target == token).reshape(rows, -1)) for rows in map(len, exam.view.all_tokens)
    )


def _ends_rows(where: Tensor) -> bool:
    """Whether these places are the ends of rows, of more than one length, and there are some of them."""
    if where.shape[1] < 2:  # one label a row has no end
        return False
    ends = where.flip(1).long().cumprod(dim=1).flip(1).bool()
    return int(where.sum()) >= FEW and torch.equal(where, ends) and len(set(where.sum(dim=1).tolist())) > 1
