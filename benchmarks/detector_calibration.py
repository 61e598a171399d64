"""Fit the confidence of the detector, and show how reliable it is: ``python -m benchmarks.detector_calibration [--curves N]``.

Every candidate drop of many planted curves is labelled true or false; a logistic regression on its features gives the weights
kept in `eureka.curves.confidence`. The reliability is then counted on curves with shapes and noises that the fit did not use: of
all moments reported with a confidence near c, a share of about c should be planted ones. Steps of a learning rate that is not
known are no part of the fit, because their shape is that of a drop; `THRESHOLDS.doubt` lowers the confidence instead, and the
share of rate steps among all moments that look like one shows whether it is right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.command import start
from eureka.curves.confidence import FEATURES, OFFSET, WEIGHTS, probability
from eureka.curves.detector import detect, find_drops, separate
from eureka.curves.drops import Drop
from eureka.curves.grid import Array, Grid, changes, clean, grids
from eureka.curves.kinds import is_recovery
from eureka.curves.sketch import Difficulty, Planted, Truth, held_out
from eureka.curves.synthetic import MAKERS, plant
from eureka.curves.thresholds import THRESHOLDS

NOISE_LEVELS = (0.01, 0.03, 0.05, 0.1, 0.2)
"""Noise of the curves that the weights are fitted on."""
NOT_FITTED = ("epoch_boundaries", "unknown_epochs", "unknown_cuts")
"""The kinds of curves that the fit does not see: their drops are real, and only what is known besides tells what they are."""
UNKNOWN = ("unknown_epochs", "unknown_cuts")
"""The kinds whose reason is not known to the detector: it has to guess from the shape."""
RIDGE = 1.0
"""Strength of the penalty on the weights: it keeps those of correlated features finite."""
WIDTH, HEIGHT, DPI = 640, 560, 100
"""Pixels of the plot."""
COLOURS = ("#1f4e79", "#c0392b")


@dataclass(frozen=True)
class Case:
    """All candidates of one curve that may be Eureka-moments, and for each whether it is one."""

    found: list[tuple[Grid, Drop]]
    labels: list[bool]


@dataclass(frozen=True)
class Bin:
    """Reported moments of similar confidence."""

    confidence: float
    planted: float
    """The share of them that are planted Eureka-moments."""
    count: int


def is_planted(onset: float, end: float, width: float, truth: Truth) -> bool:
    """Whether a drop is this planted one, at its place and of about its length; `width` is the distance of points."""
    shared = min(end, truth.end) - max(onset, truth.onset)
    shorter, longer = sorted([end - onset, truth.length])
    return shared > -2.0 * width and shared + 2.0 * width >= 0.5 * shorter and longer <= 5.0 * shorter + 4.0 * width


def labelled(curve: Planted) -> Case:
    """The candidates of a planted curve with their labels."""
    x, y = changes(*clean(-curve.values if curve.rising else curve.values, curve.steps))
    truths = curve.truths + curve.maybe
    found = [(grid, drop) for grid in grids(x, y) for drop in find_drops(grid) if not is_recovery(grid, drop)]
    return Case(
        found,
        [
            any(is_planted(grid.step(drop.onset), grid.step(drop.end), grid.width, truth) for truth in truths)
            for grid, drop in found
        ],
    )


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


@dataclass(frozen=True)
class Report:
    """A moment that the detector reported on a planted curve."""

    kind: str
    """The kind of the curve."""
    confidence: float
    like_rate_step: bool
    planted: bool


def reports(curve: Planted) -> list[Report]:
    """All moments of kind ``eureka`` that are reported at any confidence."""
    moments = detect(curve.values, curve.steps, lr=curve.lr, epochs=curve.epochs, rising=curve.rising, min_confidence=0.0)
    truths = [truth for truth in curve.truths + curve.maybe if truth.kind == "eureka"]
    width = float(np.median(np.diff(curve.steps)))
    return [
        Report(
            curve.name,
            moment.confidence,
            moment.like_rate_step,
            any(is_planted(moment.onset, moment.end, width, truth) for truth in truths),
        )
        for moment in moments
        if moment.kind == "eureka"
    ]


def reliability(reported: Sequence[Report], bins: int = 10) -> list[Bin]:
    """The share of planted moments, by confidence."""
    sure = np.array([one.confidence for one in reported])
    planted = np.array([one.planted for one in reported])
    cell = np.minimum((sure * bins).astype(int), bins - 1)
    chosen = [cell == k for k in range(bins) if (cell == k).any()]
    return [Bin(float(sure[one].mean()), float(planted[one].mean()), int(one.sum())) for one in chosen]


def calibration_error(bins: Sequence[Bin]) -> float:
    """The mean distance of confidence and share, over all moments."""
    return sum(abs(one.confidence - one.planted) * one.count for one in bins) / sum(one.count for one in bins)


def curves_of(count: int, seed: int, *, unseen: bool = False) -> Iterable[Planted]:
    """`count` curves of every kind at every noise level."""
    rng = np.random.default_rng(seed)
    for noise in NOISE_LEVELS:
        difficulty = held_out(Difficulty(noise=noise)) if unseen else Difficulty(noise=noise)
        for kind in MAKERS:
            yield from (plant(kind, rng, difficulty) for _ in range(count))


def draw(lines: Mapping[str, Sequence[Bin]], path: Path) -> None:
    """The reliability as a picture: on the diagonal, confidence is what it says."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="#b0b8c0", linewidth=1)
    for (name, bins), colour in zip(lines.items(), COLOURS, strict=False):
        share, count = np.array([one.planted for one in bins]), np.array([one.count for one in bins])
        error = np.sqrt(np.maximum(share * (1 - share), 0.25 / count) / count)
        axes.errorbar([one.confidence for one in bins], share, yerr=error, color=colour, marker="o", capsize=2, label=name)
    axes.set(xlabel="confidence", ylabel="share of planted moments", xlim=(0, 1), ylim=(0, 1))
    axes.set_title("Shapes and noises that the fit never saw", loc="left", fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left")
    figure.savefig(path, metadata={"Software": None})


def main(
    curves: Annotated[int, typer.Option("--curves", metavar="N", min=2, help="Planted curves of each kind and noise.")] = 30,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="PNG", help="Draw the reliability.")] = None,
) -> None:
    """Print the weights for `eureka.curves.confidence`, and the reliability of those that are there now."""
    weights, offset = fit([labelled(curve) for curve in curves_of(curves, seed=1) if curve.name not in NOT_FITTED])
    out = sys.stdout.write
    out("WEIGHTS = np.array([" + ", ".join(f"{w:.3f}" for w in weights) + f"])  # {', '.join(FEATURES)}\nOFFSET = {offset:.3f}\n")
    reported = [one for curve in curves_of(curves // 2, seed=2, unseen=True) for one in reports(curve)]
    known, all_ = reliability([one for one in reported if one.kind not in UNKNOWN]), reliability(reported)
    out("\nreliability of the present weights on unseen shapes and noises\n")
    out("                      confidence  planted  moments\n")
    for name, bins in (("all could be known", known), ("with what could not", all_)):
        for one in bins:
            out(f"{name:20} {one.confidence:11.2f} {one.planted:8.2f} {one.count:8d}\n")
        out(f"{name:20} mean distance of confidence and share: {calibration_error(bins):.3f}\n")
    doubted = [one.planted for one in reported if one.like_rate_step and one.confidence >= 0.5 * (1.0 - THRESHOLDS.doubt)]
    out(f"of {len(doubted)} that look like a rate step, {1.0 - np.mean(doubted):.2f} are none of the planted moments\n")
    if plot is not None:
        draw({"all could be known": known, "with unknown rates and epochs": all_}, plot)


if __name__ == "__main__":
    start(main)
