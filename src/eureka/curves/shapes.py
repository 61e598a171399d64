"""Ways a loss can fall from 1 to 0, and ways it can be noisy; the ones held out never meet the fit of the confidence.

A shape is a function of u, with u = 0 where the fall is centred or begins and one unit as its natural time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from eureka.curves.grid import Array

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
    """Two sigmoids that overlap: 60 % of the way, a breath, and the rest."""
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
