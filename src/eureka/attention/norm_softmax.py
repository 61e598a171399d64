"""NormSoftmax: divide each row of logits by its own spread, as long as that is smaller than √d."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, shown, wide
from eureka.attention.fused import repeat_heads
from eureka.attention.mask import KeyPadding, Mask, NoMask, visible_mean
from eureka.attention.norm_weights import NormWeights
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.rowwise import call, norm
from eureka.attention.spread import Divisor
from eureka.attention.variance import row_variance
from eureka.errors import RequestError

SHORT, SHORT_MASKED = 3, 5
"""Explicit weights are taken up to this many head dimensions of queries or keys; up to the second number where rows see different
keys and their statistics cost more. Measured on one core, head dimensions 32, 64 and 128, forward and backward, in times of SDPA.
No mask: at 2·D tokens explicit 1.2 to 1.4, fused 1.5 to 1.6; at 3·D level; at 4·D explicit 1.2 to 1.65, fused 1.25 to 1.4.
Causal: at 4·D explicit 1.2 to 1.55, fused 1.5 to 2; at 6·D explicit 1.4 to 1.9, fused 1.5 to 1.7."""


class NormSoftmax(SoftmaxFamily):
    """β = 1 / min(√d, s), where s is the standard deviation (or variance) of the row's logits q·k over its visible keys.

    The spread is that of the logits without any bias (see `mask.Bias`), population statistics, and the gradient flows through it.
    A row without spread keeps the temperature of the cap, or √d when there is none: see `spread.Divisor`.

    Half precision: statistics are always single. Without a mask the attention itself runs in the precision it is given; under any
    mask in single, because a row of two or three keys can have a spread so small that the gradient is the difference of two
    large terms, of which 8 bits leave nothing.

    >>> from eureka.attention.mask import NoMask
    >>> q, k = torch.tensor([[[[2.0, 0.0]]]]), torch.tensor([[[[0.5, 0.0], [0.0, 0.0]]]])  # logits 1 and 0: s = 0.5
    >>> NormSoftmax().beta(q, k, NoMask()).item()
    2.0
    """

    def __init__(
        self,
        *,
        statistic: Literal["std", "var"] = "std",
        cap: PositiveFloat | Literal["sqrt_d"] | None = "sqrt_d",
    ) -> None:
        super().__init__()
        if statistic not in ("std", "var"):
            raise RequestError(f"statistic is 'std' or 'var', not {statistic!r}.")
        if isinstance(cap, str) and cap != "sqrt_d":
            raise RequestError(f"cap is a number above 0, 'sqrt_d' or None, not {cap!r}.")
        if isinstance(cap, (int, float)) and not cap > 0:
            raise RequestError(f"a cap divides the logits, so it must be above 0, not {cap}.")
        self.statistic, self.cap = statistic, cap

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        mask = checked(q, k, v, mask)
        if isinstance(mask, NoMask):
            return super().forward(q, k, v, mask, dropout)
        with full_precision(q):
            return super().forward(wide(q), wide(k), wide(v), mask, dropout).to(v.dtype)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        q, k = wide(q).contiguous(), wide(k).contiguous()  # once: the norms and every product want them so
        return self.divisor(q).beta(row_variance(q, k, mask), logit_size(q, k, mask))

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            q, k = wide(q).contiguous(), wide(k).contiguous()
            logits = logits_of(q, k)
            return call(NormWeights, logits, logit_size(q, k, mask), self.divisor(q), *(shown(logits, mask) or [None]))

    def short(self, q: Tensor, k: Tensor, mask: Mask) -> bool:
        limit = SHORT if isinstance(mask, (NoMask, KeyPadding)) else SHORT_MASKED
        return min(q.shape[2], k.shape[2]) <= limit * q.shape[3]

    def divisor(self, q: Tensor) -> Divisor:
        root = float(q.shape[-1] ** 0.5)
        return Divisor(self.statistic, root if self.cap == "sqrt_d" else self.cap, root)


@torch.no_grad()
def logit_size(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """|q_i|·√(mean |k_j|²) over the visible keys: a bound of the root mean square of the row's logits, (B, H, Q, 1)."""
    q, k = wide(q), wide(k)
    squares = repeat_heads(norm(k).squeeze(-1).square(), q.shape[1])
    return norm(q) * visible_mean(squares, mask, q.shape[2]).sqrt()
