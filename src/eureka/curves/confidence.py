"""From the features of a drop to a probability: a logistic fitted on synthetic curves.

``python -m eureka.curves.calibration`` prints the numbers below and how reliable they are.
"""

from __future__ import annotations

import numpy as np

from eureka.curves.grid import Array

WEIGHTS = np.array([2.944, 1.283, -5.024, 1.916, -1.018, 5.102, 0.872, 2.050])
OFFSET = -12.768


def probability(features: Array, weights: Array = WEIGHTS, offset: float = OFFSET) -> float:
    """1 / (1 + exp(−(offset + weights · features))): how likely a drop with these features is a Eureka-moment."""
    return float(1.0 / (1.0 + np.exp(-np.clip(offset + weights @ features, -30.0, 30.0))))
