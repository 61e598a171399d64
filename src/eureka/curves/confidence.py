"""From the features of a drop to a probability: a logistic fitted on synthetic curves."""

from __future__ import annotations

import numpy as np

from eureka.curves.features import Drop

WEIGHTS = np.array([1.865, 0.982, 2.136, 0.478, -3.656, 1.521, -0.836, 1.631, -3.083, 1.019])
OFFSET = -10.194


def confidence(drop: Drop) -> float:
    """The probability that such a drop is a Eureka-moment."""
    return float(1.0 / (1.0 + np.exp(-(OFFSET + WEIGHTS @ drop.features))))
