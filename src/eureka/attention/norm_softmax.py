"""NormSoftmax: divide each row of logits by its own spread, as long as that is smaller than √d."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import PositiveFloat
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, shown, wide
from eureka.attention.fused import repeat_heads
from eureka.attention.mask import KeyPadding, Mask, NoMask, visible_mean
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.rowwise import call, dot, norm
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
        if torch.compiler.is_compiling():
            return False  # a limit would make a graph for each side of it
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


class NormWeights(Function):
    """p = softmax(β·a + bias), β from the variance of the row's visible logits a; 0 where hidden.

    With c = a - ā the centred logits (softmax does not see the shift) and h the gradient of β·a:
    ∂a = β·h + (2/n)·(dβ/dvar)·(h·c)·c, because both h and c sum to zero over the row.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, size: Tensor, divisor: Divisor, seen: Tensor | None, *rest: Tensor) -> tuple[Tensor, ...]:
        """a (B, H, Q, K), size (B, H, Q, 1), the fields of `Shown` or None → (B, H, Q, K), and what backward needs."""
        if seen is None:
            n = a.new_full((), a.shape[-1])
            c = a - a.mean(dim=-1, keepdim=True)
        else:
            n = rest[1]
            c = (a - (a * seen).sum(dim=-1, keepdim=True) / n).mul_(seen)
        beta, slope = divisor.beta_and_slope(norm(c).square() / n, size)
        p = (c * beta).softmax(dim=-1) if seen is None else torch.addcmul(rest[0], c, beta).softmax(dim=-1).mul_(rest[2])
        return p, c, beta, 2 * slope / n

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.inputs, ctx.added_shape = len(inputs), None if inputs[3] is None else inputs[4].shape
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * ctx.inputs
        if g is not None:
            p, c, beta, slope = ctx.saved_tensors
            h = torch._softmax_backward_data(g, p, -1, p.dtype)
            if ctx.added_shape is not None and ctx.needs_input_grad[4]:
                grads[4] = h.sum_to_size(ctx.added_shape)
            grads[0] = (h * beta).addcmul_(c, dot(h, c) * slope)
        return tuple(grads)
