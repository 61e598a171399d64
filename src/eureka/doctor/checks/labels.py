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
SHUFFLES = 20


def check(exam: Exam) -> Iterator[Finding]:
    if exam.learning or exam.once(asked_offset) is not None:
        return
    found = _samples(exam)
    if found is None:
        return
    features, labels = found
    if len(labels) < LEAST or len(np.unique(labels)) < 2:
        return
    score, shuffled = _scores(features, labels)
    if score > shuffled.max() or (chance := exam.chance) is None or exam.level < 0.9 * chance:
        return
    yield Finding(
        cause="labels_unrelated",
        sure=0.8,
        explains=0.9,
        evidence=(
            f"A forest of trees finds no relation between inputs and labels in {len(labels):,} samples: it is right in {percent(score)} of"
            f" those it has not seen, and in up to {percent(float(shuffled.max()))} when labels are shuffled.",
            f"The loss is {exam.level:.4g}, and chance is {chance:.4g}.",
        ),
        advice="look at how inputs and labels are joined: an index that is off, a shuffle of one and not of the other.",
        numbers={"score": score, "shuffled": float(shuffled.max())},
    )


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
