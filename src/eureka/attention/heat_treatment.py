"""Heat Treatment: a temperature that rises while the model trains."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat
from torch import Tensor

from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.temperature import positive_temperature
from eureka.errors import RequestError
from eureka.schedules import cosine_ramp


class HeatTreatment(SoftmaxFamily):
    """β = 1/τ(step), where τ rises from `start` to `end` (√d unless given) along a cosine over `share` of training."""

    def __init__(
        self,
        total_steps: int,
        *,
        start: PositiveFloat = 1 / 3,
        end: PositiveFloat | None = None,
        share: Annotated[float, Field(gt=0, le=1)] = 0.5,
    ) -> None:
        super().__init__()
        if isinstance(total_steps, str) or not total_steps >= 1 or total_steps != int(total_steps):
            raise RequestError(f"total_steps must be a whole number of 1 or more, not {total_steps!r}.")
        self.start, self.end = positive_temperature(start), end if end is None else positive_temperature(end)
        self.ramp_steps = max(1, round(share * total_steps))
        self.step = 0

    def advance(self, step: int) -> None:
        self.step = step

    def temperature(self, head_dim: int) -> float:
        end = head_dim**0.5 if self.end is None else self.end
        return cosine_ramp(self.start, end, self.ramp_steps)(self.step)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return 1.0 / self.temperature(q.shape[-1])
