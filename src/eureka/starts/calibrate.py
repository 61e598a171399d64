"""Rescale parameters until a measurement is what was asked, and put them back."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

WITHIN = 0.01
"""How far a measurement may be from what was asked, as a share of it."""
SKIP = 0.001
"""What is rescaled comes this near, if it can; parameters of less precision come within their own rounding."""
ROUNDS = 8
"""How often one thing is rescaled. Once is enough where all of q and k is made by W_Q and W_K; a learned key beside them
(`add_bias_kv`) does not grow with them."""

Key = TypeVar("Key")


class Kept:
    """Parameters that were changed, with copies of what they were.

    Inside `torch.autocast`, weights are kept as they were cast first: each change makes it forget them.
    """

    def __init__(self) -> None:
        self._copies: dict[nn.Parameter, Tensor] = {}

    def scale(self, parameter: nn.Parameter, factor: float | Tensor) -> None:
        """Multiply a parameter in at least single precision."""
        self.fill(parameter, parameter.to(torch.promote_types(parameter.dtype, torch.float32)) * factor)

    @torch.no_grad()
    def fill(self, parameter: nn.Parameter, values: Tensor) -> None:
        """Give a parameter other values."""
        if parameter not in self._copies:
            self._copies[parameter] = parameter.detach().clone()
        parameter.copy_(values)
        torch.clear_autocast_cache()

    def restore(self) -> None:
        """Put back every bit of all parameters."""
        self.put_back(list(self._copies))

    @torch.no_grad()
    def put_back(self, some: Iterable[nn.Parameter]) -> None:
        """Put back every bit of some parameters; afterwards they are not kept."""
        for parameter in some:
            if parameter in self._copies:
                parameter.copy_(self._copies.pop(parameter))
        torch.clear_autocast_cache()


def calibrate(
    measure: Callable[[], Mapping[Key, Sequence[float]]],
    scale: Callable[[Key, Sequence[float]], None],
    asked: float,
    tolerance: Callable[[Key], float],
) -> Mapping[Key, Sequence[float]]:
    """Measure everything, scale the first thing that is off, and again, until nothing is off; the last measurement.

    So each layer is scaled on what the layers before it, already scaled, pass on. A thing that stays off ends it: the caller
    says which. What is within `WITHIN` already is not begun with: so a second calibration changes nothing, also where a weight
    serves several measurements that do not all come to `tolerance`.
    """
    rounds = Counter[Key]()
    while True:
        found = measure()
        far = [key for key, values in found.items() if distance(values, asked) > (tolerance(key) if rounds[key] else WITHIN)]
        if any(rounds[key] >= ROUNDS and distance(found[key], asked) > WITHIN for key in far):
            return found
        left = [key for key in far if rounds[key] < ROUNDS]
        if not left:
            return found
        scale(left[0], found[left[0]])
        rounds[left[0]] += 1


def distance(values: Sequence[float], asked: float) -> float:
    """The largest distance from what was asked, as a share of it; infinite if a value is missing.

    >>> distance([1.0, 1.5], 2.0), distance([2.0, float("nan")], 2.0)
    (0.5, inf)
    """
    return max(math.inf if math.isnan(value) else abs(value / asked - 1) for value in values)


def rounding(parameter: nn.Parameter) -> float:
    """How near a measurement comes by rescaling a parameter; autocast rounds it for each pass."""
    kind, dtypes = parameter.device.type, [parameter.dtype]
    if torch.is_autocast_enabled(kind):
        dtypes.append(torch.get_autocast_dtype(kind))
    return max(SKIP, *(torch.finfo(dtype).eps for dtype in dtypes))
