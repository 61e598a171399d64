"""softmax(q·k / τ): one temperature for all rows, lower than √d."""

from __future__ import annotations

from pydantic import PositiveFloat
from torch import Tensor

from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily
from eureka.errors import RequestError


class Temperature(SoftmaxFamily):
    """β = 1/τ. The temperature always divides; plain softmax has τ = √d."""

    def __init__(self, *, temperature: PositiveFloat = 1.0) -> None:
        super().__init__()
        self.temperature = positive_temperature(temperature)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return 1.0 / self.temperature


def positive_temperature(temperature: float) -> float:
    """The temperature, once it is known to be above 0.

    >>> positive_temperature(-1.0)
    Traceback (most recent call last):
    eureka.errors.RequestError: a temperature divides the logits, so it must be above 0, not -1.0.
    """
    if not temperature > 0:
        raise RequestError(f"a temperature divides the logits, so it must be above 0, not {temperature}.")
    return temperature
