"""Is attention the bottleneck? Rows that are nearly one-hot, or nearly uniform, and what happens when they are not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eureka.doctor.attention_state import AttentionState, attention_state, measure
from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.formats import number, percent

ONE_HOT, UNIFORM = 0.9, 0.95
FEW = 0.5
"""A gradient of W_Q and W_K below this share of that of W_V is little."""


def check(exam: Exam) -> Iterator[Finding]:
    state = exam.once(attention_state)
    if state is None or exam.learning:
        return
    if state.near_one_hot and max(state.near_one_hot) > ONE_HOT:
        yield from _saturated(exam, state)
    elif state.entropy and min(state.entropy) > UNIFORM:
        yield from _flat(exam, state)


def _saturated(exam: Exam, state: AttentionState) -> Iterator[Finding]:
    found = exam.unlocks(lambda fork: _softer(exam, fork)) if state.spread else None
    worst = max(state.near_one_hot)
    tried = f" With logits of spread 1 the loss falls by {percent(found.share, 1)} in {SHORT} steps." if found else ""
    yield Finding(
        cause="attention_saturated",
        sure=0.92 if found else 0.7,
        explains=0.92 if found else 0.7,
        evidence=(
            f"In a layer {percent(worst, 0)} of the rows put more than 0.99 on one key"
            + (f"; the logits of a row spread by {number(max(state.spread))}." if state.spread else ".")
            + tried,
        ),
        advice="begin with smaller W_Q and W_K, normalise q and k (qk_norm), or rescale them now.",
        code="eureka.clear_start(model, inputs, positions=None, trained=True)",
        numbers={"near_one_hot": worst},
    )


def _softer(exam: Exam, fork: Fork) -> None:
    """W_Q and W_K rescaled so that the logits of a row have a spread of 1."""
    from eureka.starts.clear_start import clear_start

    given: Any = dict(exam.view.keywords) or exam.view.inputs[0]
    try:
        clear_start(fork.model, given, positions=None, trained=True)
    except RequestError:
        return


def _flat(exam: Exam, state: AttentionState) -> Iterator[Finding]:
    """The paper's: near-uniform rows, little gradient at W_Q and W_K, and more of it with sharper rows."""
    if state.hand_written or not state.ratio or min(state.ratio) > FEW:
        return
    sharper = measure(exam, _sharper)
    if sharper is None or not sharper.ratio or min(sharper.ratio) < 2 * min(state.ratio):
        return
    yield Finding(
        cause="attention_flat",
        sure=0.75,
        explains=0.8,
        evidence=(
            f"The rows of attention are within {percent(1 - min(state.entropy), 1)} of uniform, and W_Q and W_K get"
            f" {number(min(state.ratio))} of the gradient of W_V; with NormSoftmax they get {number(min(sharper.ratio))}.",
        ),
        advice="sharpen the rows; `eureka race` shows on your own run whether it shortens the wait.",
        code='eureka.patch(model, "norm_softmax")',
        numbers={"entropy": min(state.entropy), "ratio": min(state.ratio), "sharper": min(sharper.ratio)},
    )


def _sharper(fork: Fork) -> None:
    from eureka.patching.patch import patch

    patch(fork.model, "norm_softmax")
