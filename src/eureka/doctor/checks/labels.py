"""Do the labels follow from the inputs at all? Searched for without the model, beside labels that were shuffled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from eureka.doctor.checks.targets import asked_offset
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.sight import sequence_of
from eureka.formats import percent

LEAST, MOST = 256, 2000
"""Samples that are needed, and that are looked at."""
SHUFFLES = 10
LAGS = 8


def check(exam: Exam) -> Iterator[Finding]:
    chance = exam.chance
    if exam.learning or chance is None or exam.level < 0.9 * chance:
        return
    found = _in_sequences(exam) if exam.once(asked_offset) is not None else _in_samples(exam)
    if found is None:
        return
    yield Finding(
        cause="labels_unrelated",
        sure=0.85,
        explains=0.9,
        evidence=(found, f"The loss is {exam.level:.4g}, and chance is {chance:.4g}."),
        advice="look at how inputs and labels are joined: an index that is off, a shuffle of one and not of the other.",
    )


def _in_samples(exam: Exam) -> str | None:
    """What a forest of trees finds, if that is nothing."""
    found = _samples(exam)
    if found is None or len(found[1]) < LEAST or len(np.unique(found[1])) < 2:
        return None
    score, shuffled = _scores(*found)
    if score > shuffled.max():
        return None
    return (
        f"A forest of trees finds no relation between inputs and labels in {len(found[1]):,} samples: it is right in {percent(score)} of"
        f" those it has not seen, and in up to {percent(float(shuffled.max()))} when labels are shuffled."
    )


def _in_sequences(exam: Exam) -> str | None:
    """What the tokens before say about the next one, if that is nothing."""
    rows = [view.tokens for batch in exam.case.batches if (view := exam.peek(batch=batch)).tokens is not None]
    if not rows or len({one.shape[1] for one in rows}) > 1:
        return None
    tokens = torch.cat(rows).cpu().numpy()
    rng = np.random.default_rng(0)
    own, mixed = (
        _related(tokens),
        np.array([_related(rng.permutation(tokens.ravel()).reshape(tokens.shape)) for _ in range(SHUFFLES)]),
    )
    if (own > mixed.max(axis=0)).any():
        return None
    return (
        f"In {tokens.size:,} tokens the next one is no more related to the {LAGS} before it, and no more often among them, than when all"
        " tokens are shuffled."
    )


def _related(tokens: np.ndarray) -> np.ndarray:
    """For each lag the information (in bits) that a token has about the one so far on; and how often a token was there before."""
    size = int(tokens.max()) + 1
    found = []
    for lag in range(1, min(LAGS, tokens.shape[1] - 1) + 1):
        pairs = tokens[:, :-lag].astype(np.int64) * size + tokens[:, lag:]
        counts = np.unique(pairs, return_counts=True)[1] / pairs.size
        one = np.unique(tokens[:, :-lag], return_counts=True)[1] / pairs.size
        two = np.unique(tokens[:, lag:], return_counts=True)[1] / pairs.size
        found.append(_entropy(one) + _entropy(two) - _entropy(counts))
    before = np.mean([[token in row[:t] for t, token in enumerate(row)] for row in tokens[:256].tolist()])
    return np.array([*found, before])


def _entropy(shares: np.ndarray) -> float:
    return float(-(shares * np.log2(shares)).sum())


def _samples(exam: Exam) -> tuple[np.ndarray, np.ndarray] | None:
    """One row a sample: what the model was given, and the label; None where a sample has no one label."""
    features, labels = [], []
    for batch in exam.case.batches:
        view = exam.peek(batch=batch)
        call = next((one for one in view.losses if one.name in ("cross_entropy", "nll_loss")), None)
        given = sequence_of(view) if sequence_of(view) is not None else _first(view.inputs)
        if call is None or given is None or call.target.dim() != 1 or len(call.target) != len(given):
            return None
        features.append(given.detach().float().flatten(1).cpu().numpy())
        labels.append(call.target.detach().cpu().numpy())
    x, y = np.concatenate(features)[:MOST], np.concatenate(labels)[:MOST]
    return x, y


def _first(inputs: tuple[object, ...]) -> Tensor | None:
    return next((one for one in inputs if isinstance(one, torch.Tensor) and one.dim() >= 2), None)


def _scores(x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """The accuracy of a forest on held-out samples, with the labels and with shuffled labels."""
    from sklearn.ensemble import ExtraTreesClassifier

    rng = np.random.default_rng(0)
    if x.shape[1] > 512:
        x = x[:, rng.choice(x.shape[1], 512, replace=False)]
    half = len(y) // 2

    def score(labels: np.ndarray) -> float:
        forest = ExtraTreesClassifier(60, min_samples_leaf=2, random_state=0).fit(x[:half], labels[:half])
        return float((forest.predict(x[half:]) == labels[half:]).mean())

    return score(y), np.array([score(rng.permutation(y)) for _ in range(5)])
