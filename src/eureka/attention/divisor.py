"""What NormSoftmax divides a row of logits by: its spread, a cap, or √d where there is no spread."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from eureka.attention.explicit import wide
from eureka.attention.fused import repeat_heads
from eureka.attention.mask import Mask, visible_mean
from eureka.attention.rowwise import norm


@torch.no_grad()
def logit_size(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """|q_i|·√(mean |k_j|²) over the visible keys: a bound of the root mean square of the row's logits, (B, H, Q, 1)."""
    q, k = wide(q), wide(k)
    squares = repeat_heads(norm(k).squeeze(-1).square(), q.shape[1])
    return norm(q) * visible_mean(squares, mask, q.shape[2]).sqrt()


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

    def beta(self, variance: Tensor, floor: Tensor) -> Tensor:
        """1 / divisor, differentiable in the variance."""
        flat = variance <= floor
        s = variance.masked_fill(flat, 1.0)  # before the root: its gradient at 0 is infinite
        s = s.sqrt() if self.statistic == "std" else s
        if self.cap is not None:
            s = s.clamp_max(self.cap)
        return s.reciprocal().masked_fill(flat, 1 / self.rest)

    def slope(self, beta: Tensor, variance: Tensor, floor: Tensor) -> Tensor:
        """The derivative of 1 / divisor by the variance."""
        slope = beta.pow(3) * -0.5 if self.statistic == "std" else -beta.square()
        still = variance <= floor
        if self.cap is not None:
            still = still | (variance >= (self.cap**2 if self.statistic == "std" else self.cap))
        return slope.masked_fill(still, 0.0)

    def floor(self, size: Tensor) -> Tensor:
        """The variance up to which a row has no spread; `size` is |q|·rms|k|."""
        floor = (size * (RESOLUTION * torch.finfo(size.dtype).eps)).clamp_min(TINY)
        return floor.square() if self.statistic == "std" else floor

    @property
    def rest(self) -> float:
        """What divides a row without spread."""
        return self.root if self.cap is None else self.cap
