"""Planted curves with known truth: Eureka-moments of many shapes, and everything that only looks like one.

Units mean nothing here: every curve is scaled in loss and in step at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from eureka.curves.sketch import Difficulty, Planted, Sketch, Truth
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


def close_stairs(sketch: Sketch) -> Planted:
    """Two drops of similar size, with a plateau between them that is only a few times as long as the second one."""
    onset = sketch.log_uniform(0.25, 0.6)
    _start(sketch, onset)
    length = float(np.clip(onset / sketch.log_uniform(6.0, 40.0), 4.0 / len(sketch.t), 0.05))
    first = sketch.drop(onset, length)
    second = length * sketch.log_uniform(0.5, 1.5)
    sketch.drop(first.end + second * sketch.log_uniform(2.0, 5.0), second, sketch.log_uniform(0.5, 2.0))
    return sketch.done("close_stairs")


def coarse(sketch: Sketch) -> Planted:
    """A log of few points: a plateau of four to ten of them, perhaps sloping, and a drop within three; it may go on falling."""
    few = Sketch(sketch.difficulty, sketch.rng, points=int(sketch.rng.integers(18, 70)))
    point = 1.0 / (len(few.t) - 1)
    start = int(sketch.rng.integers(0, 4))
    if start:
        few.initial(few.log_uniform(0.3, 20.0), 0.25 * start * point, 3.0)
    onset = (start + sketch.rng.integers(4, 11) + sketch.rng.uniform(0.0, 1.0)) * point
    truth = few.drop(onset, sketch.rng.uniform(0.2, 3.0) * point)
    few.y = few.y - sketch.rng.uniform(0.0, 0.2) * np.minimum(few.t / onset, 1.0)
    late = np.maximum(few.t - truth.end, 0.0) / (1.0 - truth.end)
    few.y = few.y - sketch.rng.uniform(0.0, 0.4) * (1.0 - (1.0 + 8.0 * late) ** -1.0)
    return few.done("coarse", whole=True)


def after_a_huge_fall(sketch: Sketch) -> Planted:
    """The first fall is ten to two hundred times as large as the drop."""
    onset = sketch.log_uniform(0.2, 0.8)
    time = sketch.log_uniform(0.001, 0.01) * onset
    sketch.initial(sketch.log_uniform(10.0, 200.0), time, sketch.rng.uniform(2.5, 4.0))
    sketch.drop(onset, _length(sketch, 0.6 * onset, onset))
    return sketch.done("after_a_huge_fall")


def rising(sketch: Sketch) -> Planted:
    """An accuracy that sits, then rises."""
    onset = sketch.log_uniform(0.1, 0.85)
    start = _start(sketch, onset)
    sketch.drop(onset, _length(sketch, onset - start, onset))
    curve = sketch.done("rising")
    return replace(curve, values=-curve.values, rising=True)


def forward_filled(sketch: Sketch) -> Planted:
    """Every value is repeated until the next one is logged, as when logs of several intervals are joined."""
    onset = sketch.log_uniform(0.15, 0.8)
    start = _start(sketch, onset)
    sketch.drop(onset, _length(sketch, onset - start, onset))
    curve, times = sketch.done("forward_filled", whole=True), int(sketch.rng.integers(2, 21))
    width = float(curve.steps[1] - curve.steps[0]) / times
    steps = (curve.steps[:, None] + width * np.arange(times)).ravel()
    return replace(curve, steps=steps, values=np.repeat(curve.values, times))


def _epoch_stairs(sketch: Sketch) -> None:
    """A training loss that sinks slowly within an epoch and falls as the next one begins."""
    count = int(sketch.rng.integers(3, 9))
    epochs = sketch.t * count
    sketch.initial(sketch.log_uniform(0.2, 3.0), sketch.log_uniform(0.005, 0.05) / count)
    length = max(2.0 / len(sketch.t), sketch.log_uniform(0.01, 0.05) / count)
    size, shrink = 1.0, sketch.rng.uniform(0.5, 1.0)
    for k in range(1, count):
        sketch.drop(k / count, length, size, kind="epoch_boundary", maybe=True)
        size *= shrink
    sketch.y = sketch.y - sketch.rng.uniform(0.0, 0.2) * epochs
    sketch.epochs = epochs


def epoch_boundaries(sketch: Sketch) -> Planted:
    """Falls as epochs begin; the epoch of each point is known."""
    _epoch_stairs(sketch)
    return sketch.done("epoch_boundaries")


def unknown_epochs(sketch: Sketch) -> Planted:
    """The same, and the epoch is not known."""
    _epoch_stairs(sketch)
    return replace(sketch.done("unknown_epochs"), epochs=None)


def unknown_cuts(sketch: Sketch) -> Planted:
    """Steps of the learning rate, which is not given: sudden falls towards a lower level, with less noise from then on."""
    _language(sketch)
    count = int(sketch.rng.integers(1, 4))
    cuts = np.cumsum(sketch.rng.dirichlet(np.full(count + 1, 6.0)))[:-1]
    factor = sketch.rng.uniform(0.1, 0.3)
    for cut in cuts:
        size, time = sketch.log_uniform(0.3, 1.0), sketch.log_uniform(0.3 / len(sketch.t), 0.02)
        late = np.maximum(sketch.t - cut, 0.0)
        slow = sketch.rng.uniform(0.05, 0.4)
        sketch.y = sketch.y - size * (
            (1.0 - slow) * (1.0 - sketch.settling()(late / time)) + slow * (1.0 - (1.0 + late / (10.0 * time)) ** -0.5)
        )
        sketch.calm = sketch.calm * np.where(late > 0.0, factor ** sketch.rng.uniform(0.3, 1.0), 1.0)
        end = float(cut) + 3.0 * max(time, 1.0 / len(sketch.t))
        sketch.maybe.append(Truth(onset=float(cut), steepest=float(cut), end=end, kind="lr_step"))
    return sketch.done("unknown_cuts")


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
        *(single, sloping, staircase, close_stairs, early, bump, after_a_huge_fall, coarse, grokking, spiky, stepped_rate),
        *(rising, forward_filled),
        *(power_law, exponential, flat, slide, spikes, warm_down, rate_steps, divergence, gradual),
        *(epoch_boundaries, unknown_epochs, unknown_cuts, borderline),
    )
}
"""Every kind of planted curve by name: first those with a Eureka-moment, then those without one, and the borderline kind."""
