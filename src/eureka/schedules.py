"""A schedule is a function from the training step to a number; it has no state, so a resumed run sees the same values."""

from __future__ import annotations

import math
from collections.abc import Callable

Schedule = Callable[[int], float]


def constant(value: float) -> Schedule:
    """The same value at every step."""
    return lambda step: value


def cosine_ramp(start: float, end: float, steps: int) -> Schedule:
    """From `start` to `end` along half a cosine over `steps` steps, then `end`.

    value(t) = end + (start - end) · (1 + cos(π t / steps)) / 2

    >>> ramp = cosine_ramp(8.0, 0.0, 100)
    >>> ramp(0), round(ramp(50), 9), ramp(100), ramp(1000)
    (8.0, 4.0, 0.0, 0.0)
    """

    def value(step: int) -> float:
        if step >= steps:
            return end
        return end + (start - end) * (1 + math.cos(math.pi * max(step, 0) / steps)) / 2

    return value


def warm_up(schedule: Schedule, steps: int, start: float = 0.0) -> Schedule:
    """A straight line from `start` to the schedule's first value over `steps` steps, then the schedule from its beginning.

    >>> rate = warm_up(constant(1.0), steps=4)
    >>> [rate(t) for t in range(6)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    """

    def value(step: int) -> float:
        if step < steps:  # the first step already moves: t = 0 is (1/steps) of the way
            return start + (schedule(0) - start) * (step + 1) / steps
        return schedule(step - steps)

    return value
