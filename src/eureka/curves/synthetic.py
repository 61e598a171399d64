"""Planted curves with known truth: Eureka-moments of many shapes, and everything that only looks like one.

Units mean nothing here: every curve is scaled in loss and in step at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from eureka.curves.sketch import Difficulty, Planted, Sketch
from eureka.errors import UnknownNameError

CLEAR = (1.5, 40.0)
"""How many times longer than its drop a plateau is."""
Maker = Callable[[Sketch], Planted]


def plant(name: str, rng: np.random.Generator, difficulty: Difficulty | None = None) -> Planted:
    """One curve of a kind.

    >>> curve = plant("single", np.random.default_rng(0))
    >>> len(curve.truths), bool(curve.steps[0] < curve.truths[0].onset < curve.truths[0].end < curve.steps[-1])
    (1, True)
    """
    if name not in MAKERS:
        raise UnknownNameError("kind of planted curve", name, MAKERS)
    return MAKERS[name](Sketch(difficulty or Difficulty(), rng))


def suite(count: int, rng: np.random.Generator, difficulty: Difficulty | None = None) -> Iterator[Planted]:
    """`count` curves of every kind."""
    for name in MAKERS:
        for _ in range(count):
            yield plant(name, rng, difficulty)


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
    """Two to four drops, each after a plateau of its own; small ones may be reported or not."""
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
    """The moment comes in the first few hundredths of a long log."""
    long = Sketch(sketch.difficulty, sketch.rng, points=int(sketch.log_uniform(4_000, 20_000)))
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
    """The test loss rises for long, then falls below everything before."""
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


def _language(sketch: Sketch) -> None:
    """A smooth power law over most of the range."""
    sketch.initial(sketch.rng.uniform(2.0, 10.0), sketch.log_uniform(0.0005, 0.05), sketch.rng.uniform(0.3, 1.5))


def power_law(sketch: Sketch) -> Planted:
    """A smooth fall, as of a language model."""
    _language(sketch)
    return sketch.done("power_law")


def exponential(sketch: Sketch) -> Planted:
    """A few exponentials of different times, as of a convex problem."""
    for _ in range(int(sketch.rng.integers(1, 4))):
        sketch.y = sketch.y + sketch.rng.uniform(0.3, 3.0) * np.exp(-sketch.t / sketch.log_uniform(0.003, 0.5))
    return sketch.done("exponential")


def flat(sketch: Sketch) -> Planted:
    """Nothing was learned: noise alone."""
    return sketch.done("flat")


def slide(sketch: Sketch) -> Planted:
    """A straight decline from start to end."""
    sketch.y = sketch.rng.uniform(0.3, 3.0) * (1.0 - sketch.t)
    return sketch.done("slide")


def spikes(sketch: Sketch) -> Planted:
    """A power law with upward spikes, from which it returns."""
    _language(sketch)
    sketch.spikes(int(sketch.rng.integers(1, 6)), sketch.rng.uniform(0.5, 4.0))
    return sketch.done("spikes")


def warm_down(sketch: Sketch) -> Planted:
    """The learning rate, which is not given, goes to zero at the end, and the loss falls a little faster."""
    _language(sketch)
    share = sketch.rng.uniform(0.1, 0.4)
    part = np.clip((sketch.t - (1.0 - share)) / share, 0.0, 1.0)
    extra = sketch.rng.uniform(0.02, 0.08) * float(np.ptp(sketch.y))
    sketch.y = sketch.y - extra * part ** sketch.rng.uniform(0.7, 2.0)
    return sketch.done("warm_down")


def rate_steps(sketch: Sketch) -> Planted:
    """A decay whose known learning rate is cut once or twice."""
    _language(sketch)
    cuts = np.sort(sketch.rng.uniform(0.3, 0.9, int(sketch.rng.integers(1, 3))))
    if np.min(np.diff(cuts), initial=1.0) < 0.15:
        cuts = cuts[:1]
    factor = sketch.rng.uniform(0.05, 0.3)
    sketch.lr = 0.1 * factor ** np.searchsorted(cuts, sketch.t).astype(float)
    for cut in cuts:
        length = max(sketch.log_uniform(0.003, 0.04), 3.0 / len(sketch.t))
        sketch.drop(float(cut), length, sketch.rng.uniform(0.3, 1.0), kind="lr_step", maybe=True)
    return sketch.done("rate_steps")


def divergence(sketch: Sketch) -> Planted:
    """The loss jumps up, stays there for a while, and comes back to where it was."""
    _language(sketch)
    start, stop = sketch.rng.uniform(0.2, 0.5), sketch.rng.uniform(0.55, 0.8)
    width = sketch.log_uniform(0.002, 0.02)
    bump = np.tanh((sketch.t - start) / width) - np.tanh((sketch.t - stop) / (width * sketch.rng.uniform(0.5, 4.0)))
    learned = float(np.interp(start, sketch.t, sketch.y) - np.interp(stop, sketch.t, sketch.y))
    height = sketch.rng.uniform(0.3, 2.0) + 3.0 * learned  # a lower jump would end at a new low, and be a moment
    sketch.y = sketch.y + height * 0.5 * bump
    return sketch.done("divergence")


def gradual(sketch: Sketch) -> Planted:
    """A plateau, then a fall that takes longer than the plateau did."""
    onset = sketch.rng.uniform(0.1, 0.4)
    sketch.initial(sketch.log_uniform(0.1, 5.0), sketch.log_uniform(0.002, 0.02) * onset)
    sketch.drop(onset, onset * sketch.log_uniform(1.6, 2.0 / onset))
    sketch.truths.clear()
    return sketch.done("gradual")


def borderline(sketch: Sketch) -> Planted:
    """The drop takes about as long as the plateau; it counts as a moment if it is no longer."""
    onset = sketch.rng.uniform(0.15, 0.35)
    time = sketch.log_uniform(0.002, 0.02) * onset
    sketch.initial(sketch.log_uniform(0.1, 3.0), time)
    share = sketch.log_uniform(0.5, 1.8)
    sketch.drop(onset, share * onset, maybe=True)
    if share <= 1.0:
        sketch.truths.append(sketch.maybe.pop())
    else:
        sketch.maybe.clear()
    return sketch.done("borderline")


MAKERS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        *(single, sloping, staircase, early, bump, grokking, spiky, stepped_rate),
        *(power_law, exponential, flat, slide, spikes, warm_down, rate_steps, divergence, gradual, borderline),
    )
}
"""Every kind of planted curve by name: first those with a Eureka-moment, then those without one, and the borderline kind."""
