"""How sure a drop is: the ratios by which it is judged, and the probability that they give.

All ratios are free of the units of the loss and of the step. The probability is a logistic regression fitted on planted curves:
``python -m benchmarks.detector_calibration`` prints its weights and shows how reliable they are.
"""

from __future__ import annotations

import numpy as np

from eureka.curves.candidates import Scale
from eureka.curves.grid import Array

FEATURES = ("length", "noise", "trend", "share", "room", "kept", "lasting")
"""Length of the stretch before the drop, by the drop's duration; size by the falls before it, and by their spread; the change on
that stretch, by the size; size by the range of the curve, but for a huge first fall; how much log is left; how much of the drop
lasts, by the size, and by the error of that."""
WEIGHTS = np.array([3.087, 1.280, -5.223, 2.108, 5.771, 2.384, 1.992])
OFFSET = -14.055


def probability(features: Array, weights: Array = WEIGHTS, offset: float = OFFSET) -> float:
    """1 / (1 + exp(−(offset + weights · features))): how likely a drop with these features is a Eureka-moment."""
    return float(1.0 / (1.0 + np.exp(-np.clip(offset + weights @ features, -30.0, 30.0))))


def features_of(
    y: Array, noise: Array, scale: Scale, index: int,
    *, past: int, onset: float, tenth: float, ninetieth: float, size: float, reach: float, last: bool,
) -> Array:  # fmt: skip
    """The values of FEATURES for one drop, each a ratio or the logarithm of one, within fixed limits."""
    fall, length, duration = scale.fall, scale.length, max(ninetieth - tenth, 1.0)
    earlier = fall[past : max(index - length, past) + 1]
    typical = upper_median(earlier)
    white = float(noise[past : int(onset) + 1].mean())
    tiny = 1e-9 * size
    spread = max(1.4826 * upper_median(np.abs(earlier - typical)), white * np.sqrt(2.0 / scale.window), tiny)
    stretch = y[past : max(int(onset), past + 2)]
    quarter = max(1, len(stretch) // 4)
    progress = abs(float(stretch[:quarter].mean() - stretch[-quarter:].mean()))
    room = (len(y) - ninetieth) / duration if last else 2.0
    step, error = lasting_step(y, past, onset, ninetieth, duration)
    return np.array([
        _log((onset - past) / duration, 0.3, 6.0),
        _log((fall[index] - typical) / spread, 2.0, 20.0),
        np.clip(progress / size, 0.0, 1.0),
        _log(size / reach, 0.003, 0.3),
        np.clip(room, 0.0, 1.0),
        np.clip(step / size, 0.0, 0.7),
        _log(step / max(error, white / 10.0, tiny), 1.0, 15.0),
    ])  # fmt: skip


def _log(ratio: float, low: float, high: float) -> float:
    return float(np.log(min(max(ratio, low), high)))


def upper_median(values: Array) -> float:
    """The median without averaging (`statistics.median_high`), by partition: much faster than `numpy.quantile` on short arrays.

    >>> upper_median(np.array([3.0, 1.0, 4.0, 2.0]))
    3.0
    """
    middle = len(values) // 2
    return float(np.partition(values, middle)[middle])


def lasting_step(y: Array, past: int, onset: float, end: float, duration: float) -> tuple[float, float]:
    """How much of a drop lasts, and the standard error of that: the step between two lines of one slope, before and after it.

    The lines reach as far as the stretch before the drop, or as the curve goes on after it, up to ten durations. The error comes
    from the means of whole blocks, so that autocorrelated noise does not count as many independent points; of the 16 parts of its
    variance, 4 are those of the two levels and 12 those of the slope between the middles of the two sides.
    """
    left, right = int(np.floor(onset)), int(np.ceil(end))
    reach = int(np.ceil(min(10.0 * duration, max(left - past, 2), max(len(y) - right, 2))))
    one, two = y[max(left - reach, 0) : left], y[right : right + reach]
    if len(one) < 2 or len(two) < 2:
        return 0.0, 0.0
    s, t = np.arange(len(one)) - len(one) + 1.0, np.arange(len(two)) + 0.0
    ds, dt = s - s.mean(), t - t.mean()
    slope = (ds @ one + dt @ two) / (ds @ ds + dt @ dt)
    a, b = one.mean() - slope * s.mean(), two.mean() - slope * t.mean()
    block = max(1, min(int(duration), len(one) // 3, len(two) // 3))
    means = np.concatenate([_block_means(one - slope * s - a, block), _block_means(two - slope * t - b, block)])
    return float(a - b), float(np.sqrt((means @ means) / max(len(means) - 3, 1) * 16.0 / len(means)))


def _block_means(values: Array, size: int) -> Array:
    whole = len(values) // size * size
    return np.asarray(values[:whole].reshape(-1, size).mean(axis=1))
