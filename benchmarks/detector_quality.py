"""Precision, recall and step error of the detectors on planted curves: ``python -m benchmarks.detector_quality [--curves N]``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.command import start
from eureka.curves.detector import detect
from eureka.curves.moment import EurekaMoment
from eureka.curves.online import OnlineDetector
from eureka.curves.score import Score, match, spacing, total
from eureka.curves.sketch import Difficulty, Planted, held_out
from eureka.curves.synthetic import MAKERS, plant

MODERATE = 0.03
"""Noise of a point, as a share of the drop, that counts as moderate; the published curves with a moment have 0.01 to 0.02."""
BORDER = ("borderline", "unknown_cuts")
"""Kinds whose truth people would disagree about, or could not know without the learning rate."""

Detector = Callable[..., list[EurekaMoment]]


def score_kinds(detector: Detector, count: int, seed: int, *, noise: float = MODERATE, unseen: bool = False) -> dict[str, Score]:
    """The score of a detector on `count` curves of every kind."""
    difficulty = held_out(Difficulty(noise=noise)) if unseen else Difficulty(noise=noise)
    rng = np.random.default_rng(seed)
    scores = {}
    for kind in MAKERS:
        scores[kind] = Score()
        for _ in range(count):
            curve = plant(kind, rng, difficulty)
            scores[kind].add(detector(curve.values, curve.steps, lr=curve.lr, epochs=curve.epochs, rising=curve.rising), curve)
    return scores


@dataclass(frozen=True)
class OnlineFigures:
    """Moments found, false alarms, delay and cost of the online detector."""

    found: int
    truths: int
    false_alarms: int
    curves: int
    delays: Sequence[float]
    """From the true end to the event, in lengths of the drop."""
    microseconds: float
    """Processor time of a point, on average."""


def online_figures(count: int, seed: int, *, noise: float = MODERATE) -> OnlineFigures:
    """Feed it `count` curves of every kind, point by point, but those of which it would have to know more than the loss."""
    rng, found, truths, false, curves, points = np.random.default_rng(seed), 0, 0, 0, 0, 0
    delays: list[float] = []
    spent = 0.0
    for kind in MAKERS:
        if kind in (*BORDER, "rate_steps", "stepped_rate", "epoch_boundaries", "unknown_epochs", "rising", "forward_filled"):
            continue
        for _ in range(count):
            curve = plant(kind, rng, Difficulty(noise=noise))
            begun = time.process_time()
            events = announced(curve)
            spent, points, curves = spent + time.process_time() - begun, points + len(curve.steps), curves + 1
            pairs = match([moment.steepest for moment, _ in events], curve.truths, spacing(curve), margin=1.0)
            excused = match([moment.steepest for moment, _ in events], curve.maybe, spacing(curve), margin=1.0)
            found, truths = found + len(pairs), truths + len(curve.truths)
            false += len(events) - len(set(pairs) | set(excused))
            delays += [(events[i][1] - curve.truths[j].end) / curve.truths[j].length for i, j in pairs.items()]
    return OnlineFigures(found, truths, false, curves, delays, 1e6 * spent / points)


def announced(curve: Planted) -> list[tuple[EurekaMoment, float]]:
    """The moments that the online detector announces in a curve, and the step at which it does."""
    detector, out = OnlineDetector(), []
    for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
        event = detector.update(step, value)
        if event is not None and event.moment is not None:
            out.append((event.moment, event.step))
    return out


def main(curves: Annotated[int, typer.Option("--curves", metavar="N", min=1, help="Planted curves of each kind.")] = 60) -> None:
    """Precision, recall and step error for each kind, for seen and unseen shapes; and what the online detector finds."""
    out = sys.stdout.write
    for unseen in (False, True):
        for noise in (0.01, MODERATE, 0.1):
            scores = score_kinds(detect, curves, seed=21, noise=noise, unseen=unseen)
            out(f"\nnoise {noise:g}, {'unseen' if unseen else 'seen'} shapes\n")
            out("kind                   curves  precision  recall  false  step error\n")
            scores["all but " + ", ".join(BORDER)] = total(score for kind, score in scores.items() if kind not in BORDER)
            for kind, one in scores.items():
                out(
                    f"{kind:22} {one.curves:6d} {one.precision:10.3f} {one.recall:7.3f} {one.false:6d} {one.median_error:11.3f}\n"
                )
    figures = online_figures(max(curves // 4, 1), seed=22)
    low, middle, high = np.quantile(figures.delays, [0.25, 0.5, 0.75])
    out(f"\nonline, noise {MODERATE:g}\nfound {figures.found} of {figures.truths}\n")
    out(f"false alarms: {figures.false_alarms} in {figures.curves} curves\n")
    out(f"delay after the true end: {middle:.2f} lengths of the drop (quartiles {low:.2f}, {high:.2f})\n")
    out(f"{figures.microseconds:.1f} µs a point\n")


if __name__ == "__main__":
    start(main)
