"""Planted curves that do hold Eureka-moments."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from eureka.curves.synthetic import Planted, Sketch

CLEAR = (1.5, 40.0)
"""How many times longer than its drop a plateau is."""


def _start(sketch: Sketch, until: float) -> float:
    """Perhaps a first fall, over by the returned time, which is well before `until`."""
    if sketch.rng.random() < 0.3:
        return 0.0
    time = sketch.log_uniform(0.002, 0.03) * until
    sketch.initial(sketch.log_uniform(0.1, 5.0), time, sketch.rng.uniform(1.5, 3.0))
    return 6.0 * time


def _length(sketch: Sketch, plateau: float, onset: float) -> float:
    """A drop short against its plateau, spanning a few points and over before the curve ends."""
    length = plateau / sketch.log_uniform(*CLEAR)
    return float(np.clip(length, 3.0 / len(sketch.t), 0.97 - onset if onset < 0.9 else 0.07))


def single(sketch: Sketch) -> Planted:
    """One plateau, one drop."""
    onset = sketch.log_uniform(0.1, 0.85)
    start = _start(sketch, onset)
    sketch.drop(onset, _length(sketch, onset - start, onset))
    return sketch.done("single")


def sloping(sketch: Sketch) -> Planted:
    """The plateau itself falls by up to half of the drop, and the loss goes on falling after it."""
    onset = sketch.log_uniform(0.15, 0.8)
    start = _start(sketch, onset)
    truth = sketch.drop(onset, _length(sketch, onset - start, onset))
    sketch.y = sketch.y - sketch.rng.uniform(0.05, 0.5) * np.minimum(sketch.t / onset, 1.0) ** sketch.rng.uniform(0.5, 1.2)
    after = np.maximum(sketch.t - truth.steepest, 0.0) / (1.0 - truth.steepest)
    sketch.y = sketch.y - sketch.rng.uniform(0.0, 0.15) * (1.0 - (1.0 + 8.0 * after) ** -1.0)
    return sketch.done("sloping")


def staircase(sketch: Sketch) -> Planted:
    """Two to four drops, each after a plateau of its own; of small ones nothing is demanded."""
    count = int(sketch.rng.integers(2, 5))
    _start(sketch, 0.3)
    bounds = 0.12 + 0.85 * np.cumsum(np.append(0.0, sketch.rng.dirichlet(np.full(count, 8.0))))
    for start, stop in pairwise(bounds):
        plateau = sketch.rng.uniform(0.55, 0.75) * (stop - start)
        length = max(plateau / sketch.log_uniform(1.5, 15.0), 3.0 / len(sketch.t))
        length = min(length, 0.9 * (stop - start) - plateau)
        size = sketch.log_uniform(0.15, 1.0)
        sketch.drop(start + plateau, length, size, maybe=size < 0.4)
    return sketch.done("staircase")


def early(sketch: Sketch) -> Planted:
    """All happens in the first few hundredths of a long log."""
    long = Sketch(sketch.setting, sketch.rng, points=int(sketch.log_uniform(4_000, 20_000)))
    onset = long.log_uniform(0.02, 0.08)
    start = _start(long, onset)
    long.drop(onset, _length(long, onset - start, onset))
    return long.done("early")


def bump(sketch: Sketch) -> Planted:
    """A language-model curve with a drop of a tenth of its range, as when induction heads form."""
    onset = sketch.log_uniform(0.15, 0.5)
    sketch.initial(sketch.rng.uniform(4.0, 12.0), sketch.log_uniform(0.001, 0.004) * onset, sketch.rng.uniform(0.8, 1.5))
    sketch.drop(onset, max(onset / sketch.log_uniform(5.0, 30.0), 3.0 / len(sketch.t)))
    return sketch.done("bump")


def grokking(sketch: Sketch) -> Planted:
    """The test loss rises for long, then falls below all it ever was."""
    onset = sketch.log_uniform(0.2, 0.8)
    length = _length(sketch, 0.7 * onset, onset)
    truth = sketch.drop(onset, length)
    rise = sketch.rng.uniform(0.2, 0.8)
    sketch.y = sketch.y * (1.0 - rise * np.exp(-sketch.t / (sketch.rng.uniform(0.05, 0.15) * truth.onset)))
    return sketch.done("grokking")


def spiky(sketch: Sketch) -> Planted:
    """Upward spikes on the plateau and after the drop."""
    onset = sketch.log_uniform(0.3, 0.8)
    start = _start(sketch, onset)
    sketch.drop(onset, _length(sketch, onset - start, onset))
    sketch.spikes(int(sketch.rng.integers(1, 4)), 0.5, before=0.8 * onset)
    return sketch.done("spiky")


def stepped_rate(sketch: Sketch) -> Planted:
    """A drop of its own first; then the known learning rate is cut, and the loss drops for that reason."""
    onset, cut = sketch.rng.uniform(0.2, 0.4), sketch.rng.uniform(0.65, 0.85)
    start = _start(sketch, onset)
    sketch.drop(onset, _length(sketch, onset - start, 0.8))
    sketch.lr = np.where(sketch.t < cut, 1e-3, 1e-3 * sketch.rng.uniform(0.05, 0.3))
    sketch.drop(cut, max(sketch.rng.uniform(0.005, 0.05), 3.0 / len(sketch.t)), sketch.rng.uniform(0.4, 1.0), kind="lr_step")
    return sketch.done("stepped_rate")


MAKERS = {maker.__name__: maker for maker in (single, sloping, staircase, early, bump, grokking, spiky, stepped_rate)}
