"""Where exactly a drop begins, is steepest and ends: a least-squares fit of a skewed sigmoid around it.

The shape is the distribution function of an asymmetric Laplace variable: it leaves the plateau exponentially with time a·w, and
settles exponentially with time (1−a)·w, being steepest where the two meet at μ::

    S(t) = 1 − a·exp((t−μ)/(a·w))      before μ
    S(t) = (1−a)·exp((μ−t)/((1−a)·w))  after μ
    y(t) ≈ level + size·S(t) + slope·t

Skew a → 0 is a kink with an exponential tail, a = ½ a symmetric drop. A finite difference would have to choose between noise (a
narrow window) and bias (a wide one); the fit uses every point of the drop, and a slope of its plateau does not move its onset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.thresholds import THRESHOLDS


@dataclass(frozen=True)
class DropFit:
    """The skewed sigmoid that fits a drop best, in indices."""

    centre: float
    width: float
    skew: float
    evidence: float
    """By how much −2·log-likelihood is lower than that of the best symmetric one."""

    def at(self, share: float) -> float:
        """Where this share of the drop is done.

        >>> fit = DropFit(centre=100.0, width=10.0, skew=0.5, evidence=0.0)
        >>> fit.at(0.5), round(fit.at(0.05), 2), round(fit.at(0.95), 2)
        (100.0, 88.49, 111.51)
        """
        a = self.skew
        if share <= a:
            return self.centre + a * self.width * float(np.log(share / a))
        return self.centre - (1.0 - a) * self.width * float(np.log((1.0 - share) / (1.0 - a)))


def skewed_sigmoid(t: Array, centre: Array, width: Array, skew: Array) -> Array:
    """S(t) of the module's docstring, for arrays that broadcast.

    >>> float(skewed_sigmoid(np.array(0.0), np.array(0.0), np.array(1.0), np.array(0.25)))
    0.75
    """
    u = (t - centre) / width
    left = 1.0 - skew * np.exp(np.minimum(u, 0.0) / skew)
    right = (1.0 - skew) * np.exp(-np.maximum(u, 0.0) / (1.0 - skew))
    return np.asarray(np.where(u < 0.0, left, right))


def fit_drop(y: Array, tenth: float, ninetieth: float, past: int = 0) -> DropFit:
    """The fit to the drop between the indices `tenth` and `ninetieth` of `y`: skewed, if that is clearly better.

    What lies before `past` belongs to another fall, and is not looked at.
    """
    length = max(ninetieth - tenth, 1.0)
    low, high = max(int(tenth - 1.5 * length) - 2, min(past, int(tenth) - 2), 0), min(int(ninetieth + 1.5 * length) + 3, len(y))
    thin = max(1, (high - low) // THRESHOLDS.fit_points)
    t, part = np.arange(low, high, dtype=np.float64), y[low:high]
    if thin > 1:
        whole = len(t) // thin * thin
        t, part = t[:whole].reshape(-1, thin).mean(axis=1), part[:whole].reshape(-1, thin).mean(axis=1)
    middle = 0.5 * (tenth + ninetieth)
    straight, plain = _fit(t, part, middle, length, skewed=False)
    skew, better = _fit(t, part, middle, length, skewed=True)
    centre, width, a = skew if plain - better > THRESHOLDS.fit_evidence else straight
    return DropFit(float(np.clip(centre, tenth - 0.25 * length, ninetieth)), float(width), float(a), plain - better)


def _fit(t: Array, y: Array, middle: float, length: float, *, skewed: bool) -> tuple[Array, float]:
    """Centre, width and skew of the best fit, and its misfit."""
    best, misfit = np.array([middle, 0.4 * length, 0.5]), np.inf
    mesh = np.array([0.25 * length, np.log(2.0), 0.23 if skewed else 0.0])
    for round_ in range(THRESHOLDS.fit_rounds):
        best, misfit = _refined(t, y, best, mesh * 0.5**round_, first=round_ == 0)
    return best, misfit


def _refined(t: Array, y: Array, best: Array, mesh: Array, *, first: bool) -> tuple[Array, float]:
    """The best of the points around `best` in centre, log width and skew, and its misfit −2·log-likelihood."""
    near = np.arange(-2.0, 3.0) if first else np.arange(-1.0, 1.5)
    centres = best[0] + 0.5 * mesh[0] * (np.arange(-4.0, 5.0) if first else np.arange(-2.0, 3.0))
    widths = best[1] * np.exp(mesh[1] * near)
    skews = np.unique(np.clip(best[2] + mesh[2] * near, 0.02, 0.98))
    points = np.stack(np.meshgrid(centres, widths, skews, indexing="ij"), axis=-1).reshape(-1, 3)
    residual = _residual(t, y, skewed_sigmoid(t, points[:, :1], points[:, 1:2], points[:, 2:]))
    least = int(np.argmin(residual))
    smallest = max(float(residual[least]), THRESHOLDS.fit_exact * float(np.var(y)) * len(t), 1e-300)
    return points[least], len(t) * float(np.log(smallest))


def _residual(t: Array, y: Array, shapes: Array) -> Array:
    """What is left of `y` after each shape, a level and a slope are fitted to it: the sum of squares, shape by shape."""
    line = t - t.mean()
    line = line / max(float(np.sqrt(line @ line)), 1e-300)
    rest = y - y.mean()
    rest = rest - (line @ rest) * line
    shapes = shapes - shapes.mean(axis=1, keepdims=True)
    shapes = shapes - (shapes @ line)[:, None] * line
    power = np.einsum("ij,ij->i", shapes, shapes)
    along = np.maximum(shapes @ rest, 0.0)  # a rise is no drop
    return np.asarray(rest @ rest - along**2 / np.maximum(power, 1e-300))
