"""Is attention the bottleneck? Rows with all weight on one key, or rows so uniform that W_Q and W_K hardly learn."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

from eureka.doctor.attention_state import AttentionState, attention_state, measure
from eureka.doctor.exam import LONG, SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.errors import RequestError
from eureka.forks.case import Fork, seeded
from eureka.forks.trial import kept
from eureka.formats import fixed, number, percent
from eureka.patching.attach import find_sites

ONE_HOT, UNIFORM = 0.9, 0.95
FEW = 0.5
"""A gradient of W_Q and W_K below this share of that of W_V is little."""
SHARP = 0.1
"""Rows this far from uniform have begun to choose."""
DULL, UNMEASURED = 1e-3, 1e-5
"""Rows this near to uniform cannot choose; and how they sharpen is lost in rounding."""
EARLY, PATIENCE = 100, 250
"""A run is not judged before so many steps, and a wait of fewer steps is no trouble."""


def check(exam: Exam) -> Iterator[Finding]:
    state = exam.once(attention_state)
    if state is None or exam.well:
        return
    if state.near_one_hot and max(state.near_one_hot) > ONE_HOT:
        yield from _saturated(exam, state)
    elif state.entropy and min(state.entropy) > UNIFORM:
        yield from _flat(exam, state)


def _saturated(exam: Exam, state: AttentionState) -> Iterator[Finding]:
    found = exam.unlocks(lambda fork: _softer(exam, fork)) if state.spread else None
    worst = max(state.near_one_hot)
    spread = f"; the logits of a row spread by {number(max(state.spread))}" if state.spread else ""
    tried = f" With logits of spread 1 the loss falls by {percent(found.share, 1)} in {SHORT} steps." if found else ""
    yield Finding(
        cause="attention_saturated",
        sure=0.92 if found else 0.75,
        explains=0.92 if found else 0.8,
        evidence=(f"In a layer {percent(worst, 0)} of the rows put more than 0.99 on one key{spread}.{tried}",),
        advice="begin with smaller W_Q and W_K, normalise q and k (qk_norm), or rescale them now.",
        code="eureka.clear_start(model, inputs, positions=None, trained=True)",
        numbers={"near_one_hot": worst},
    )


def _softer(exam: Exam, fork: Fork) -> None:
    """W_Q and W_K rescaled so that the logits of a row have a spread of 1."""
    from eureka.starts.clear_start import clear_start

    with suppress(RequestError):
        clear_start(fork.model, exam.given, positions=None, trained=True)


def _flat(exam: Exam, state: AttentionState) -> Iterator[Finding]:
    """The paper's: near-uniform rows that hardly sharpen, and little gradient at W_Q and W_K; surer if sharper rows give more."""
    if exam.taken < EARLY or (state.ratio and min(state.ratio) > FEW) or _is_frozen(exam):
        return
    wait = _wait(exam, state)
    if wait < PATIENCE or (not math.isfinite(wait) and max(state.sharpness) > DULL):
        return  # rows that do not sharpen may have no need to
    pace = (
        f"it takes about {fixed(float(f'{wait:.2g}'), 0)} more steps until a layer chooses"
        if math.isfinite(wait)
        else "no layer sharpens"
    )
    near = percent(sharpest, 1) if (sharpest := max(state.sharpness)) >= DULL else f"less than {percent(DULL, 1)}"
    told = [f"The rows of attention are within {near} of uniform; at the pace of the next {LONG} steps {pace}."]
    sharper = _with_sharper_rows(exam) if state.ratio else None
    helps = sharper is None or ratio_of_flattest(state, sharper) > min(state.ratio)
    if sharper is not None:
        told.append(
            f"W_Q and W_K get {number(min(state.ratio))} of the gradient of W_V, and"
            f" {number(ratio_of_flattest(state, sharper))} with NormSoftmax{'' if helps else ': no more at once'}."
        )
    yield Finding(
        cause="attention_flat",
        sure=0.7 if helps else 0.5,
        explains=0.8,
        evidence=tuple(told),
        advice=("sharpen the rows" if helps else "sharper rows alone may not help")
        + "; `eureka race` shows on your own run what shortens the wait.",
        code='eureka.patch(model, "norm_softmax")' if helps else "",
        numbers={"entropy": min(state.entropy), "wait": wait},
    )


def _is_frozen(exam: Exam) -> bool:
    """Whether attention cannot learn whatever its rows are: none of its parameters asks for a gradient."""
    weights = [one for site in find_sites(exam.case.model).sites for one in site.module.parameters()]
    return bool(weights) and not any(one.requires_grad for one in weights)


def ratio_of_flattest(state: AttentionState, sharper: AttentionState) -> float:
    """What the layer whose W_Q and W_K get the least has with sharper rows."""
    if len(sharper.ratio) != len(state.ratio):
        return min(sharper.ratio)
    return sharper.ratio[state.ratio.index(min(state.ratio))]


def _wait(exam: Exam, state: AttentionState) -> float:
    """Steps until the rows of some layer have begun to choose, at the pace of the next steps of this run."""
    fork = exam.case.fork()
    with seeded(), kept(exam.case):
        for batch in exam.batches(LONG):
            exam.case.train(fork, batch)
    later = measure(exam, fork)
    if later is None or len(later.sharpness) != len(state.sharpness):
        return math.inf
    pairs = [(a, b) for a, b in zip(state.sharpness, later.sharpness, strict=True) if a > UNMEASURED]
    return min((_until(a, b) for a, b in pairs), default=math.inf)


def _until(now: float, then: float) -> float:
    """Steps from then on until a sharpness that grows by the same factor every `LONG` steps is `SHARP`."""
    if then >= SHARP:
        return 0.0
    return math.inf if then <= now else LONG * math.log(SHARP / then) / math.log(then / now)


def _with_sharper_rows(exam: Exam) -> AttentionState | None:
    from eureka.patching.patch import patch

    fork = exam.case.fork()
    patch(fork.model, "norm_softmax")
    found = measure(exam, fork)
    return found if found is not None and found.ratio else None
