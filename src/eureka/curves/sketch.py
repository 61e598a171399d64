"""How a planted curve is drawn: shapes by which a loss falls from 1 to 0, kinds of noise, and the sketch that adds them up.

A shape is a function of u, with u = 0 where the fall is centred or begins and one unit as its natural time. The shapes and noises
that are held out are never used to fit the confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.moment import Kind

Shape = Callable[[Array], Array]
Noise = Callable[[int, np.random.Generator], Array]


def sigmoid(u: Array) -> Array:
    """1 / (1 + eᵘ): leaves a saddle exponentially and settles exponentially."""
    return np.asarray(0.5 - 0.5 * np.tanh(0.5 * u))


def approach(u: Array) -> Array:
    """1 before 0, then e⁻ᵘ: a kink, and an exponential tail."""
    return np.asarray(np.exp(-np.maximum(u, 0.0)))


def ramp(u: Array) -> Array:
    """Straight down from 0 to 1."""
    return np.asarray(1.0 - np.clip(u, 0.0, 1.0))


def smoothstep(u: Array) -> Array:
    """1 − 3u² + 2u³ on [0, 1]."""
    c = np.clip(u, 0.0, 1.0)
    return np.asarray(1.0 - c * c * (3.0 - 2.0 * c))


def gompertz(u: Array) -> Array:
    """1 − exp(−e⁻ᵘ): a slow start, then fast."""
    return np.asarray(1.0 - np.exp(-np.exp(-np.clip(u, -30.0, 30.0))))


def erf_like(u: Array) -> Array:
    """½ − ½·tanh(u + u³/10): close to a Gaussian's integral."""
    return np.asarray(0.5 - 0.5 * np.tanh(u + 0.1 * u**3))


def power_tail(u: Array) -> Array:
    """1 before 0, then (1 + u)⁻²: a kink, and a heavy tail."""
    return np.asarray((1.0 + np.maximum(u, 0.0)) ** -2.0)


def double(u: Array) -> Array:
    """Two sigmoids that overlap: 60 % of the way, a short pause, and the rest."""
    return np.asarray(0.6 * sigmoid(u) + 0.4 * sigmoid(u - 4.0))


SHAPES: Mapping[str, Shape] = {"sigmoid": sigmoid, "approach": approach, "ramp": ramp, "smoothstep": smoothstep}
HELD_OUT_SHAPES: Mapping[str, Shape] = {"gompertz": gompertz, "erf_like": erf_like, "power_tail": power_tail, "double": double}


def white(size: int, rng: np.random.Generator) -> Array:
    return rng.standard_normal(size)


def student(size: int, rng: np.random.Generator) -> Array:
    """Heavy tails: Student's t of 4 degrees of freedom, at unit variance."""
    return np.asarray(rng.standard_t(4.0, size) / np.sqrt(2.0))


def autocorrelated(size: int, rng: np.random.Generator) -> Array:
    """x[t] = φ·x[t−1] + ε, at unit variance; φ is drawn from [0.3, 0.95]."""
    phi = rng.uniform(0.3, 0.95)
    return _filtered(rng.standard_normal(size) * np.sqrt(1.0 - phi * phi), phi)


def wandering(size: int, rng: np.random.Generator) -> Array:
    """White noise on top of a slow wander a third as large: the data changes as well as the batch."""
    slow = _filtered(rng.standard_normal(size), 1.0 - 1.0 / rng.uniform(20.0, 0.1 * size + 21.0))
    return np.asarray(rng.standard_normal(size) + slow / (3.0 * max(float(slow.std()), 1e-12)))


def smoothed(size: int, rng: np.random.Generator) -> Array:
    """White noise under a running mean, as many loggers show it, at unit variance."""
    width = int(rng.integers(2, 30))
    out = np.convolve(rng.standard_normal(size + width - 1), np.ones(width) / np.sqrt(width), mode="valid")
    return np.asarray(out)


def skewed(size: int, rng: np.random.Generator) -> Array:
    """Log-normal less its mean, at unit variance: rarely, one batch is much harder."""
    sigma = 0.6
    draw = np.exp(sigma * rng.standard_normal(size))
    mean, variance = np.exp(sigma**2 / 2), (np.exp(sigma**2) - 1) * np.exp(sigma**2)
    return np.asarray((draw - mean) / np.sqrt(variance))


def _filtered(drive: Array, phi: float) -> Array:
    from scipy.signal import lfilter  # slow to import, and only synthetic curves need it

    return np.asarray(lfilter([1.0], [1.0, -phi], drive))


NOISES: Mapping[str, Noise] = {"white": white, "student": student, "autocorrelated": autocorrelated, "wandering": wandering}
HELD_OUT_NOISES: Mapping[str, Noise] = {"smoothed": smoothed, "skewed": skewed, "white": white, "autocorrelated": autocorrelated}


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A planted drop: 5 % and 95 % of it are done at its onset and end."""

    onset: float
    steepest: float
    end: float
    kind: Kind = "eureka"

    @property
    def length(self) -> float:
        return self.end - self.onset


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A curve and the drops that were planted in it."""

    name: str
    steps: Array
    values: Array
    lr: Array | None = None
    epochs: Array | None = None
    rising: bool = False
    truths: tuple[Truth, ...] = ()
    """The drops that must be reported."""
    maybe: tuple[Truth, ...] = ()
    """The drops that may be reported or not: neither counts as an error."""


@dataclass(frozen=True, kw_only=True)
class Difficulty:
    """How hard the curves are, and which shapes and noises they are made of."""

    noise: float = 0.05
    """Standard deviation of a point, as a share of the drop."""
    points: tuple[int, int] = (300, 4000)
    """Least and greatest number of points of a curve."""
    shapes: Mapping[str, Shape] = field(default_factory=lambda: SHAPES)
    noises: Mapping[str, Noise] = field(default_factory=lambda: NOISES)


def held_out(difficulty: Difficulty) -> Difficulty:
    """The same difficulty with shapes and noises that were never used to fit the confidence."""
    return replace(difficulty, shapes=HELD_OUT_SHAPES, noises=HELD_OUT_NOISES)


@cache
def landmarks(shape: Shape) -> tuple[float, float, float]:
    """Where 5 % and 95 % of a shape are done, and where it is steepest (the middle, if that is a stretch)."""
    u = np.linspace(-20.0, 40.0, 600_001)
    left = shape(u)
    rate = -np.diff(left)
    top = np.flatnonzero(rate > (1.0 - 1e-6) * rate.max())
    return float(u[np.argmax(left <= 0.95)]), float(u[np.argmax(left <= 0.05)]), float(u[top].mean())


class Sketch:
    """A curve being drawn over t in [0, 1], in units of its drop."""

    def __init__(self, difficulty: Difficulty, rng: np.random.Generator, *, points: int | None = None) -> None:
        self.difficulty, self.rng = difficulty, rng
        low, high = difficulty.points
        size = points or int(np.exp(rng.uniform(np.log(low), np.log(high))))
        self.t: Array = np.arange(size) / (size - 1.0)
        self.y: Array = np.zeros(size)
        self.lr: Array | None = None
        self.epochs: Array | None = None
        self.calm: Array = np.ones(size)
        """A factor of the noise at each point."""
        self.truths: list[Truth] = []
        self.maybe: list[Truth] = []

    def log_uniform(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def shape(self) -> Shape:
        names = sorted(self.difficulty.shapes)
        return self.difficulty.shapes[names[self.rng.integers(len(names))]]

    def settling(self) -> Shape:
        """How the loss settles after a step of the learning rate; another shape if those of the fit are held out."""
        return approach if "approach" in self.difficulty.shapes else power_tail

    def initial(self, size: float, time: float, power: float = 2.0) -> None:
        """The first fall from random initialisation: size · (1 + t/time)⁻ᵖ."""
        self.y = self.y + size * (1.0 + self.t / time) ** -power

    def drop(self, onset: float, length: float, size: float = 1.0, *, kind: Kind = "eureka", maybe: bool = False) -> Truth:
        """A drop whose 5 % and 95 % lie at `onset` and `onset + length`."""
        shape = self.shape()
        first, last, fastest = landmarks(shape)
        time = length / (last - first)
        self.y = self.y + size * shape((self.t - onset) / time + first)
        truth = Truth(onset=onset, steepest=onset + (fastest - first) * time, end=onset + length, kind=kind)
        (self.maybe if maybe else self.truths).append(truth)
        return truth

    def spikes(self, count: int, height: float, *, before: float = 1.0) -> None:
        """Upward jumps, each followed by an exponential return."""
        for _ in range(count):
            at, time = self.rng.uniform(0.05, before), self.log_uniform(0.001, 0.02)
            late = np.clip((self.t - at) / time, -1.0, 60.0)
            self.y = self.y + np.where(late >= 0, height * self.rng.uniform(0.3, 1.0) * np.exp(-late), 0.0)

    def done(self, name: str, *, whole: bool = False) -> Planted:
        """Add a floor and noise, convert to random units, and (unless `whole`) leave out random points of the log."""
        rng, y = self.rng, self.y - self.y.min()
        floor = 10.0 ** rng.uniform(-6.0, -2.0) if rng.random() < 0.3 else rng.uniform(0.05, 3.0)
        names = sorted(self.difficulty.noises)
        noise = self.difficulty.noises[names[rng.integers(len(names))]](len(y), rng)
        if rng.random() < 0.4:  # the smaller the loss, the smaller its noise
            noise = noise * np.clip((y + floor) / (1.0 + floor), 0.02, 3.0)
        y = y + floor + self.difficulty.noise * self.calm * noise
        unit, width, start = (
            10.0 ** rng.uniform(-3.0, 3.0),
            10.0 ** rng.uniform(-2.0, 3.0),
            rng.uniform(0.0, 3.0) * (rng.random() < 0.3),
        )
        steps = (self.t * (len(y) - 1) + start) * width

        def real(truth: Truth) -> Truth:
            a, b, c = ((at * (len(y) - 1) + start) * width for at in (truth.onset, truth.steepest, truth.end))
            return Truth(onset=a, steepest=b, end=c, kind=truth.kind)

        values = y * unit
        if rng.random() < 0.2 and not whole:
            values[rng.random(len(y)) < 0.01] = np.nan
        keep = np.ones(len(y), bool) if whole or rng.random() < 0.7 else rng.random(len(y)) < 0.7
        return Planted(
            name=name, steps=steps[keep], values=values[keep], lr=None if self.lr is None else self.lr[keep],
            epochs=None if self.epochs is None else self.epochs[keep],
            truths=tuple(map(real, self.truths)), maybe=tuple(map(real, self.maybe)),
        )  # fmt: skip
