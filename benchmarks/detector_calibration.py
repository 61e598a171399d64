"""Fit the confidence of the detector, and show how reliable it is: ``python -m benchmarks.detector_calibration [--curves N]``.

Every candidate drop of many planted curves is labelled true or false; a logistic regression on its features gives the weights
kept in `eureka.curves.confidence`. The reliability is then counted on curves with shapes and noises that the fit did not use: of
all drops reported with a confidence near c, a share of about c should be planted ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.command import start
from eureka.curves.confidence import FEATURES, OFFSET, WEIGHTS, probability
from eureka.curves.detector import find_drops, separate
from eureka.curves.drops import Drop
from eureka.curves.grid import Array, Grid, clean, grids
from eureka.curves.kinds import is_recovery
from eureka.curves.sketch import Difficulty, Planted, Truth, held_out
from eureka.curves.synthetic import suite

NOISE_LEVELS = (0.01, 0.03, 0.05, 0.1, 0.2)
"""Noise of the curves that the weights are fitted on."""
RIDGE = 1.0
"""Strength of the penalty on the weights: it keeps those of correlated features finite."""

Found = tuple[Grid, Drop]


@dataclass(frozen=True)
class Case:
    """All candidates of one curve that may be Eureka-moments, and for each whether it is one."""

    found: list[Found]
    labels: list[bool]


def is_planted(grid: Grid, drop: Drop, truth: Truth) -> bool:
    """Whether a candidate is this planted drop: at its place, and of about its length."""
    onset, end = grid.step(drop.onset), grid.step(drop.end)
    shared = min(end, truth.end) - max(onset, truth.onset)
    shorter, longer = sorted([end - onset, truth.length])
    return (
        shared > -2.0 * grid.width and shared + 2.0 * grid.width >= 0.5 * shorter and longer <= 5.0 * shorter + 4.0 * grid.width
    )


def labelled(curve: Planted) -> Case:
    """The candidates of a planted curve with their labels."""
    x, y = clean(curve.values, curve.steps)
    truths = curve.truths + curve.maybe
    found = [(grid, drop) for grid in grids(x, y) for drop in find_drops(grid) if not is_recovery(grid, drop)]
    return Case(found, [any(is_planted(grid, drop, truth) for truth in truths) for grid, drop in found])


def survivors(cases: Iterable[Case], sure: Callable[[Array], float]) -> tuple[Array, Array]:
    """Features and labels of the candidates that no surer one overlaps: those the detector would report."""
    features, labels = [], []
    for one in cases:
        known = {id(drop): label for (_, drop), label in zip(one.found, one.labels, strict=True)}
        for _, drop, _ in separate([(grid, drop, sure(drop.features)) for grid, drop in one.found]):
            features.append(drop.features)
            labels.append(float(known[id(drop)]))
    return np.array(features), np.array(labels)


def logistic(features: Array, labels: Array) -> tuple[Array, float]:
    """Weights and offset that maximise the likelihood less ½·RIDGE·|w|² of the standardised features."""
    model = make_pipeline(StandardScaler(), LogisticRegression(C=1.0 / RIDGE, solver="newton-cholesky", tol=1e-10))
    scaler, regression = model.fit(features, labels)
    weights = np.asarray(regression.coef_[0] / scaler.scale_)
    return weights, float(regression.intercept_[0] - weights @ scaler.mean_)


def fit(cases: Sequence[Case], rounds: int = 5) -> tuple[Array, float]:
    """Fit on the survivors, which depend on the fit: a few rounds suffice."""
    weights, offset = WEIGHTS, OFFSET
    for _ in range(rounds):
        features, labels = survivors(cases, lambda f, w=weights, o=offset: probability(f, w, o))  # type: ignore[misc]
        weights, offset = logistic(features, labels)
    return weights, offset


def reliability(cases: Sequence[Case], bins: int = 10) -> list[tuple[float, float, int]]:
    """For each bin of confidence: its mean, the share of planted drops, and how many there were."""
    features, labels = survivors(cases, probability)
    sure = np.array([probability(f) for f in features])
    cell = np.minimum((sure * bins).astype(int), bins - 1)
    return [
        (float(sure[cell == k].mean()), float(labels[cell == k].mean()), int((cell == k).sum()))
        for k in range(bins)
        if (cell == k).any()
    ]


def collect(count: int, seed: int, *, unseen: bool = False) -> list[Case]:
    """`count` curves of every kind at every noise level."""
    rng, cases = np.random.default_rng(seed), []
    for noise in NOISE_LEVELS:
        difficulty = Difficulty(noise=noise)
        curves = suite(count, rng, held_out(difficulty) if unseen else difficulty)
        cases += [labelled(curve) for curve in curves]
    return cases


def main(
    curves: Annotated[int, typer.Option("--curves", metavar="N", min=2, help="Planted curves of each kind and noise.")] = 60,
) -> None:
    """Print the weights for `eureka.curves.confidence`, and the reliability of those that are there now."""
    weights, offset = fit(collect(curves, seed=1))
    out = sys.stdout.write
    out("WEIGHTS = np.array([" + ", ".join(f"{w:.3f}" for w in weights) + f"])  # {', '.join(FEATURES)}\nOFFSET = {offset:.3f}\n")
    out("reliability of the present weights on unseen shapes and noises\nconfidence  planted  drops\n")
    for mean, share, number in reliability(collect(curves // 2, seed=2, unseen=True)):
        out(f"{mean:10.2f} {share:8.2f} {number:6d}\n")


if __name__ == "__main__":
    start(main)
