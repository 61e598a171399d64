"""NormSoftmax: divide each row of logits by its own spread, as long as that is smaller than √d."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import PositiveFloat
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.divisor import Divisor, logit_size
from eureka.attention.explicit import full_precision, logits_of, shown, wide
from eureka.attention.fused import repeat_heads
from eureka.attention.mask import Bias, Causal, KeyPadding, Mask, NoMask
from eureka.attention.norm_blocks import NormBlocks, triangular
from eureka.attention.norm_weights import NormWeights
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.rowwise import call
from eureka.attention.variance import row_variance
from eureka.errors import RequestError

WHOLE, WHOLE_MASKED = 3, 5
"""Explicit weights are taken up to this many head dimensions of queries or keys; up to the second number where rows see different
keys and their statistics cost more. Measured on one core, head dimensions 32, 64 and 128, forward and backward, in times of SDPA.
No mask: at 2·D tokens explicit 1.2 to 1.4, fused 1.5 to 1.6; at 3·D level; at 4·D explicit 1.2 to 1.65, fused 1.25 to 1.4.
Causal: at 4·D explicit 1.2 to 1.55, fused 1.5 to 2; at 6·D explicit 1.4 to 1.9, fused 1.5 to 1.7."""
MANY = 45_000
"""How many weights a sample must have for blocks of them to pay; with fewer, whole weights of all samples are faster. Blocks of
some samples were tried for those: slower at 17 tokens, level at 65."""
BLOCKS, BLOCKS_CAUSAL = 5, 16
"""The limits when the weights are made block by block. Measured in the same way with 4 heads: no mask, at 3·D tokens blocks 1.1
to 1.2, whole weights or fused 1.35; at 5·D 1.0 to 1.3 and 1.2 to 1.3; at 8·D 1.1 and 1.1, with more memory. Causal, at 8·D 0.85
to 0.9 and 1.3 to 1.4; at 16·D 0.95 to 1.0 and 1.2 to 1.25."""


class NormSoftmax(SoftmaxFamily):
    """β = 1 / min(√d, s), where s is the standard deviation (or variance) of the row's logits q·k over its visible keys.

    The spread is that of the logits without any bias (see `mask.Bias`), population statistics, and the gradient flows through it.
    A row without spread keeps the temperature of the cap, or √d when there is none: see `Divisor`.

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
        if dropout == 0.0 and self.in_blocks(q, k, mask):
            return self.by_blocks(q, k, v, mask)
        if isinstance(mask, NoMask):
            return super().forward(q, k, v, mask, dropout)
        with full_precision(q):
            return super().forward(wide(q), wide(k), wide(v), mask, dropout).to(v.dtype)

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        q, k = wide(q), wide(k)
        if not isinstance(mask, Causal):
            q, k = (
                q.contiguous(),
                k.contiguous(),
            )  # once: the norms and every product want them so; causal rows are copied in chunks
        divisor = self.divisor(q)
        return divisor.beta(row_variance(q, k, mask), divisor.floor(logit_size(q, k, mask)))

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            q, k = wide(q).contiguous(), wide(k).contiguous()
            logits = logits_of(q, k)
            divisor = self.divisor(q)
            floor = divisor.floor(logit_size(q, k, mask))
            return call(NormWeights, logits, floor, divisor, *(shown(logits, mask) or [None]))

    def short(self, q: Tensor, k: Tensor, mask: Mask) -> bool:
        if torch.compiler.is_compiling():
            return False  # a limit would make a graph for each side of it
        limit = WHOLE if isinstance(mask, (NoMask, KeyPadding)) else WHOLE_MASKED
        return min(q.shape[2], k.shape[2]) <= limit * q.shape[3]

    def in_blocks(self, q: Tensor, k: Tensor, mask: Mask) -> bool:
        """Whether blocks of weights are faster here than whole ones and than the fused kernel, and can be had."""
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or q.device.type != "cpu":
            return False
        if isinstance(mask, Bias) and mask.bias.requires_grad:
            return False
        limit = BLOCKS_CAUSAL if triangular(mask, q, k) else BLOCKS
        many = q.shape[1] * q.shape[2] * k.shape[2] >= MANY
        return many and q.shape[0] > 0 and min(q.shape[2], k.shape[2]) <= limit * q.shape[3]

    def by_blocks(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        """The mixed values by explicit weights, a block at a time."""
        with full_precision(q):
            kind, heads, divisor = v.dtype, q.shape[1], self.divisor(q)
            q, k, v = wide(q), repeat_heads(wide(k), heads), repeat_heads(wide(v), heads)
            learning = torch.is_grad_enabled() and any(one.requires_grad for one in (q, k, v))
            return call(NormBlocks, q, k, v, divisor.floor(logit_size(q, k, mask)), divisor, mask, learning).to(kind)

    def divisor(self, q: Tensor) -> Divisor:
        root = float(q.shape[-1] ** 0.5)
        return Divisor(self.statistic, root if self.cap == "sqrt_d" else self.cap, root)
