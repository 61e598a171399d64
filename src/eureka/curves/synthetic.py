"""Planted curves with known truth: Eureka-moments of many shapes, and everything that only looks like one.

Units mean nothing here: every curve is scaled in loss and in step at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.moment import Kind
from eureka.curves.shapes import HELD_OUT_NOISES, HELD_OUT_SHAPES, NOISES, SHAPES, Noise, Shape
from eureka.errors import UnknownNameError


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
    """A curve, the drops in it that must be reported, and those about which nothing is demanded."""

    name: str
    steps: Array
    values: Array
    lr: Array | None = None
    truths: tuple[Truth, ...] = ()
    maybe: tuple[Truth, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How hard the curves are, and which shapes and noises they are made of."""

    noise: float = 0.05
    """Standard deviation of a point, as a share of the drop."""
    points: tuple[int, int] = (300, 4000)
    shapes: Mapping[str, Shape] = field(default_factory=lambda: SHAPES)
    noises: Mapping[str, Noise] = field(default_factory=lambda: NOISES)


def held_out(setting: Setting) -> Setting:
    """The same, of shapes and noises that the fit of the confidence never met."""
    return replace(setting, shapes=HELD_OUT_SHAPES, noises=HELD_OUT_NOISES)


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

    def __init__(self, setting: Setting, rng: np.random.Generator, *, points: int | None = None) -> None:
        self.setting, self.rng = setting, rng
        low, high = setting.points
        size = points or int(np.exp(rng.uniform(np.log(low), np.log(high))))
        self.t: Array = np.arange(size) / (size - 1.0)
        self.y: Array = np.zeros(size)
        self.lr: Array | None = None
        self.truths: list[Truth] = []
        self.maybe: list[Truth] = []

    def log_uniform(self, low: float, high: float) -> float:
        return float(np.exp(self.rng.uniform(np.log(low), np.log(high))))

    def shape(self) -> Shape:
        names = sorted(self.setting.shapes)
        return self.setting.shapes[names[self.rng.integers(len(names))]]

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

    def done(self, name: str, *, scale: float = 1.0) -> Planted:
        """Add a floor and noise (in units of `scale`), take it to units of its own, and log it somehow."""
        rng, y = self.rng, self.y - self.y.min()
        floor = scale * (10.0 ** rng.uniform(-6.0, -2.0) if rng.random() < 0.3 else rng.uniform(0.05, 3.0))
        names = sorted(self.setting.noises)
        noise = self.setting.noises[names[rng.integers(len(names))]](len(y), rng)
        if rng.random() < 0.4:  # the smaller the loss, the smaller its noise
            noise = noise * np.clip((y + floor) / (scale + floor), 0.02, 3.0)
        y = y + floor + self.setting.noise * scale * noise
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
        if rng.random() < 0.2:
            values[rng.random(len(y)) < 0.01] = np.nan
        keep = np.ones(len(y), bool) if rng.random() < 0.7 else rng.random(len(y)) < 0.7
        return Planted(
            name=name, steps=steps[keep], values=values[keep], lr=None if self.lr is None else self.lr[keep],
            truths=tuple(map(real, self.truths)), maybe=tuple(map(real, self.maybe)),
        )  # fmt: skip


Maker = Callable[[Sketch], Planted]


def makers() -> dict[str, Maker]:
    """Every kind of planted curve by name."""
    from eureka.curves import planted_moments, planted_others

    return {**planted_moments.MAKERS, **planted_others.MAKERS}


def plant(name: str, rng: np.random.Generator, setting: Setting | None = None) -> Planted:
    """One curve of a kind.

    >>> curve = plant("single", np.random.default_rng(0))
    >>> len(curve.truths), bool(curve.steps[0] < curve.truths[0].onset < curve.truths[0].end < curve.steps[-1])
    (1, True)
    """
    known = makers()
    if name not in known:
        raise UnknownNameError("kind of planted curve", name, known)
    return known[name](Sketch(setting or Setting(), rng))


def suite(count: int, rng: np.random.Generator, setting: Setting | None = None) -> Iterator[Planted]:
    """`count` curves of every kind."""
    for name in makers():
        for _ in range(count):
            yield plant(name, rng, setting)
