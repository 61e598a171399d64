"""From the variance of a row of logits to what the row is divided by, and the floor under it."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

RESOLUTION = 64
"""Roundings of the largest logit a row could have, below which its spread is noise."""
TINY = 1e-10
"""An absolute floor, so that the powers of 1/s in the gradient stay finite in single precision."""


class Divisor(NamedTuple):
    """min(cap, s) with s the standard deviation or the variance, except for rows that have no spread.

    A row has no spread when s ≤ 64·ε·|q|·rms|k| (ε the rounding of the type) or s ≤ 1e-10: one key, equal keys, zero query.
    Its weights are uniform whatever divides them, so nothing is gained by 1/s and much is lost: the backward pass of the softmax
    would multiply its rounding errors by it. Such a row is divided by the cap (√d when there is none) and sends no gradient
    through s. Under the floor the normalised logits would carry noise of 1/64 or more.
    """

    statistic: Literal["std", "var"]
    cap: float | None
    root: float
    """√d"""

    def beta(self, variance: Tensor, size: Tensor) -> Tensor:
        """1 / divisor, differentiable in the variance; `size` is |q|·rms|k|."""
        flat = self.flat(variance, size)
        s = variance.masked_fill(flat, 1.0)  # before the root: its gradient at 0 is infinite
        s = s.sqrt() if self.statistic == "std" else s
        if self.cap is not None:
            s = s.clamp_max(self.cap)
        return s.reciprocal().masked_fill(flat, 1 / self.rest)

    def beta_and_slope(self, variance: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
        """1 / divisor and its derivative by the variance, in closed form."""
        beta = self.beta(variance, size)
        slope = beta.pow(3) * -0.5 if self.statistic == "std" else -beta.square()
        still = self.flat(variance, size)
        if self.cap is not None:
            still = still | (variance >= (self.cap**2 if self.statistic == "std" else self.cap))
        return beta, slope.masked_fill(still, 0.0)

    def flat(self, variance: Tensor, size: Tensor) -> Tensor:
        """Which rows have no spread."""
        floor = (size * (RESOLUTION * torch.finfo(variance.dtype).eps)).clamp_min(TINY)
        return variance <= (floor.square() if self.statistic == "std" else floor)

    @property
    def rest(self) -> float:
        """What divides a row without spread."""
        return self.root if self.cap is None else self.cap
