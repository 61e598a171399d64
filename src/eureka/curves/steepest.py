"""Where exactly a drop is steepest: a least-squares fit of a skewed sigmoid around it.

The shape is the distribution function of an asymmetric Laplace variable: it leaves the plateau exponentially with time a·w, and
settles exponentially with time (1−a)·w, being steepest where the two meet at μ::

    S(t) = 1 − a·exp((t−μ)/(a·w))      before μ
    S(t) = (1−a)·exp((μ−t)/((1−a)·w))  after μ
    y(t) ≈ level + size·S(t) + slope·t

Skew a → 0 is a kink with an exponential tail, a = ½ a symmetric drop. A finite difference would have to choose between noise (a
narrow window) and bias (a wide one); the fit uses every point of the drop.
"""

from __future__ import annotations

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.thresholds import THRESHOLDS


def skewed_sigmoid(t: Array, centre: Array, width: Array, skew: Array) -> Array:
    """S(t) of the module's docstring, for arrays that broadcast.

    >>> float(skewed_sigmoid(np.array(0.0), np.array(0.0), np.array(1.0), np.array(0.25)))
    0.75
    """
    u = (t - centre) / width
    left = 1.0 - skew * np.exp(np.minimum(u, 0.0) / skew)
    right = (1.0 - skew) * np.exp(-np.maximum(u, 0.0) / (1.0 - skew))
    return np.asarray(np.where(u < 0.0, left, right))


def steepest_index(y: Array, tenth: float, ninetieth: float) -> float:
    """The (fractional) index where the drop between the indices `tenth` and `ninetieth` of `y` is steepest."""
    length = max(ninetieth - tenth, 1.0)
    low, high = max(int(tenth - 1.5 * length) - 2, 0), min(int(ninetieth + 1.5 * length) + 3, len(y))
    thin = max(1, (high - low) // THRESHOLDS.fit_points)
    t, part = np.arange(low, high, dtype=np.float64), y[low:high]
    if thin > 1:
        whole = len(t) // thin * thin
        t, part = t[:whole].reshape(-1, thin).mean(axis=1), part[:whole].reshape(-1, thin).mean(axis=1)
    straight, plain = _fit(t, part, 0.5 * (tenth + ninetieth), length, skewed=False)
    skew, better = _fit(t, part, 0.5 * (tenth + ninetieth), length, skewed=True)
    centre = skew if better < plain - THRESHOLDS.fit_evidence else straight
    return float(np.clip(centre, tenth - 0.25 * length, ninetieth))


def _fit(t: Array, y: Array, middle: float, length: float, *, skewed: bool) -> tuple[float, float]:
    """The centre of the best fit, and its misfit."""
    best, misfit = np.array([middle, 0.4 * length, 0.5]), np.inf
    mesh = np.array([0.25 * length, np.log(2.0), 0.23 if skewed else 0.0])
    for round_ in range(THRESHOLDS.fit_rounds):
        best, misfit = _refined(t, y, best, mesh * 0.5**round_, first=round_ == 0)
    return float(best[0]), misfit


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
