"""Planted curves without a Eureka-moment, and two kinds on the boundary."""

from __future__ import annotations

import numpy as np

from eureka.curves.synthetic import Planted, Sketch


def _language(sketch: Sketch) -> None:
    """A smooth power law over most of the range."""
    sketch.initial(sketch.rng.uniform(2.0, 10.0), sketch.log_uniform(0.0005, 0.05), sketch.rng.uniform(0.3, 1.5))


def power_law(sketch: Sketch) -> Planted:
    """It merely falls."""
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
    """The learning rate, which is not told, goes to zero at the end, and the loss falls a little faster."""
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
    height = sketch.rng.uniform(0.3, 2.0) + 3.0 * learned  # else it comes back to something new, which would be a moment
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
    """The drop takes about as long as the plateau: a moment if it is shorter, and not beyond, if one must say."""
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


MAKERS = {
    maker.__name__: maker
    for maker in (power_law, exponential, flat, slide, spikes, warm_down, rate_steps, divergence, gradual, borderline)
}
