"""NormSoftmax: divide each row of logits by its own spread, as long as that is smaller than √d."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from eureka.attention.mask import Mask, visible_keys
from eureka.attention.operator import SoftmaxFamily, repeat_heads
from eureka.errors import RequestError

FLOOR = 1e-6
"""The smallest spread that is divided by; a row whose logits are all equal has uniform weights whatever its temperature."""


class NormSoftmax(SoftmaxFamily):
    """β = 1 / min(√d, s), where s is the standard deviation (or variance) of the row's logits q·k over its visible keys."""

    def __init__(
        self,
        *,
        statistic: Literal["std", "var"] = "std",
        cap: Annotated[float, Field(gt=0)] | Literal["sqrt_d"] | None = "sqrt_d",
    ) -> None:
        super().__init__()
        if statistic not in ("std", "var"):
            raise RequestError(f"statistic is 'std' or 'var', not {statistic!r}.")
        self.statistic, self.cap = statistic, cap

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        k = repeat_heads(k, q.shape[1])
        a = q @ k.transpose(-2, -1)
        visible = visible_keys(mask, q.shape[-2], k.shape[-2], q.device)
        w = torch.ones_like(a) if visible is None else visible.to(a.dtype).expand_as(a)
        n = w.sum(-1, keepdim=True).clamp_min(1)
        mean = (a * w).sum(-1, keepdim=True) / n
        var = ((a - mean) ** 2 * w).sum(-1, keepdim=True) / n
        s = var.clamp_min(FLOOR**2).sqrt() if self.statistic == "std" else var.clamp_min(FLOOR)
        cap = q.shape[-1] ** 0.5 if self.cap == "sqrt_d" else self.cap
        return 1.0 / (s if cap is None else s.clamp_max(cap))
