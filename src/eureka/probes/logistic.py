"""One logistic probe: accuracy on samples it has not seen, and online code length."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

PORTIONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
"""Shares of the training samples that the sender has sent when the probe is fitted again."""
HELD_OUT = 0.25
MOST = 4000
"""Rows that are used at most: more do not change the first two digits."""
STRENGTH = 0.1
"""Inverse strength of the penalty; representations have hundreds of features and some thousand samples."""


def read_off(x: Array, y: Array) -> dict[str, float]:
    """Fit a probe of y on the rows of x; rows are taken as independent and in random order.

    The code length is that of Voita & Titov (2020): the first portion is sent by a uniform code, every next one by the
    probabilities of a probe fitted to all before it. bits = (t₁ log₂ K + Σ -log₂ p(y_new | x_new)) / n
    """
    x, y = x[:MOST], y[:MOST]
    classes = np.unique(y)
    cut = round(len(y) * (1 - HELD_OUT))
    if len(classes) < 2 or cut < 16:
        return {"accuracy": math.nan, "chance": math.nan, "bits": math.nan, "uniform_bits": math.nan}
    codes = np.searchsorted(classes, y)
    train, test = (x[:cut], codes[:cut]), (x[cut:], codes[cut:])
    chance = np.bincount(codes, minlength=len(classes)).max() / len(codes)
    probe = Probe(len(classes)).fit(*train)
    accuracy = float((probe.log_probabilities(test[0]).argmax(axis=1) == test[1]).mean())
    return {
        "accuracy": accuracy,
        "chance": float(chance),
        "bits": _code_length(*train, len(classes)),
        "uniform_bits": math.log2(len(classes)),
    }


def _code_length(x: Array, y: Array, classes: int) -> float:
    ends = [max(1, round(portion * len(y))) for portion in PORTIONS]
    bits = ends[0] * math.log2(classes)
    for start, end in itertools.pairwise(ends):
        logs = Probe(classes).fit(x[:start], y[:start]).log_probabilities(x[start:end])
        bits -= float(logs[np.arange(end - start), y[start:end]].sum()) / math.log(2)
    return bits / len(y)


class Probe:
    """scikit-learn's logistic regression on standardised features, with every class at least a little likely."""

    def __init__(self, classes: int) -> None:
        self.classes = classes

    def fit(self, x: Array, y: Array) -> Probe:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        self.mean, self.scale = x.mean(axis=0), x.std(axis=0) + 1e-8
        self.present = np.unique(y)
        if len(self.present) < 2:
            self.model = None
            return self
        self.model = LogisticRegression(C=STRENGTH, max_iter=200)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a probe that is nearly there is good enough
            self.model.fit((x - self.mean) / self.scale, y)
        return self

    def log_probabilities(self, x: Array) -> Array:
        """(rows, classes). One part in a hundred is uniform: a class that was not met yet must cost a finite number of bits."""
        p = np.zeros((len(x), self.classes))
        p[:, self.present] = 1.0 if self.model is None else self.model.predict_proba((x - self.mean) / self.scale)
        logs: Array = np.log(0.99 * p + 0.01 / self.classes)
        return logs
