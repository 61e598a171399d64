"""The seam: every operator is called the same way, so that nothing else ever asks which one it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, masked_softmax, mix
from eureka.attention.extras import Extras
from eureka.attention.fused import Beta, fused_attention, repeat_heads
from eureka.attention.mask import Mask, hides_later_keys
from eureka.attention.registry import FIXES
from eureka.errors import RequestError

__all__ = [
    "Beta",
    "ExplicitOperator",
    "Extras",
    "Operator",
    "SoftmaxFamily",
    "fused_attention",
    "make_operator",
    "per_head",
    "repeat_heads",
]

SHORT = 20
"""Explicit weights are taken up to this many queries and keys, if the batch is large (see `BATCHED`) and gradients are wanted."""
BATCHED = 8192
"""How many weights a batch must have for that. Measured on one core, head dimensions 8 to 64: with
17 tokens the explicit formula takes 0.65 to 0.95 of the time of the fused kernel forward and backward (but more forward
alone), with 32 tokens 1.2; under 8,192 weights the single launch of the kernel wins."""


class Operator(nn.Module, ABC):
    """Attention: ``operator(q, k, v, mask, dropout)`` mixes the values; ``operator.weights(q, k, mask)`` shows how.

    q is (B, H, Q, D); k and v are (B, Hk, K, D) with Hk dividing H. `eureka.testing.check_operator` checks all of this.
    """

    needs_values: bool = False
    """Whether it does something that its weights alone do not show, so that it needs q, k and v together."""
    rows_depend_on_each_other: bool = False
    """Whether the weights of a query depend on the other queries. Then a key that is hidden from it can still matter to it,
    through a query that sees the key: such an operator is not causal."""

    @abstractmethod
    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        """The mixed values, (B, H, Q, D)."""

    @abstractmethod
    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        """The explicit weights, (B, H, Q, K): for pictures, for small probes, and as the oracle of the tests."""

    def with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        """The mixed values and the weights that mixed them, dropout included; gradients flow through these weights."""
        return _mixed(self.weights(q, k, mask), v, dropout)

    def check_mask(self, mask: Mask, queries: int, keys: int) -> None:
        """Refuse a causal mask that the operator would not keep; models ask this before they attend."""
        if self.rows_depend_on_each_other and queries > 1 and hides_later_keys(mask, queries, keys):
            raise RequestError(
                f"{type(self).__name__} is not causal: what a token attends to depends on later ones, which a model that predicts"
                " what comes next must not see; use it where every token sees all."
            )

    def advance(self, step: int) -> None:
        """Told the training step before each step; operators with a schedule listen."""


class SoftmaxFamily(Operator):
    """softmax(β·q·k): whatever gives a per-row inverse temperature β is attention at the speed of the fused kernel.

    Very short sequences take the explicit weights, which are faster then.
    Second derivatives are those of SDPA: the fused CPU kernel has none, and says so.
    """

    @abstractmethod
    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Beta:
        """The inverse temperature of each row of ``prepare(q, k)``."""

    def prepare(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What is done to q and k alone before their product; nothing, unless an operator says otherwise."""
        return q, k

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        mask = checked(q, k, v, mask)
        if self.short(q, k, mask):
            return mix(self.weights(q, k, mask), v, dropout)
        q, k = self.prepare(q, k)
        return fused_attention(q, k, v, self.beta(q, k, mask), mask, dropout)

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            q, k = self.prepare(q, k)
            return masked_softmax(logits_of(q, k) * self.beta(q, k, mask), mask)

    def with_extras(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, dropout: float, extras: Extras
    ) -> tuple[Tensor, Tensor]:
        """As `with_weights`, with a soft cap on the logits or with attention sinks.

        The cap bounds the logits that the operator has scaled, β·q·k, before any bias; a sink is one more key with a logit of
        its own, which no β scales and which no value belongs to. With plain softmax that is what Gemma 2 and GPT-OSS do.
        """
        kind = checked(q, k, v, mask)
        with full_precision(q):
            one, other = self.prepare(q, k)
            logits = extras.capped(logits_of(one, other) * self.beta(one, other, kind))
            weights = masked_softmax(logits, kind) if extras.sinks is None else extras.sunk(logits, kind)
        return _mixed(weights, v, dropout)

    def short(self, q: Tensor, k: Tensor, mask: Mask) -> bool:
        """Whether the explicit weights are faster here than the fused kernel."""
        if torch.compiler.is_compiling():
            return False  # a limit would make a graph for each side of it
        weights = q.shape[0] * q.shape[1] * q.shape[2] * k.shape[2]
        learning = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
        return learning and weights >= BATCHED and max(q.shape[2], k.shape[2]) <= SHORT


class ExplicitOperator(Operator):
    """Weights that are no softmax: the matrix is built."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        mask = checked(q, k, v, mask)
        return mix(self.weights(q, k, mask), v, dropout)


def _mixed(weights: Tensor, v: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
    weights = F.dropout(weights, dropout) if dropout > 0.0 else weights
    return mix(weights, v), weights


def per_head(parameter: Tensor, q: Tensor) -> Tensor:
    """One number per head, ready to multiply (B, H, Q, D)."""
    if parameter.shape[0] != q.shape[1]:
        raise RequestError(f"this operator was made for {parameter.shape[0]} heads, but q has {q.shape[1]}.")
    return parameter[:, None, None]


def make_operator(name: str | type[Operator], settings: Mapping[str, Any] | None = None, **context: Any) -> Operator:
    """An operator by its name or class.

    >>> make_operator("temperature", {"temperature": 0.5}).beta(None, None, None)
    2.0

    Args:
        name: one that `eureka fixes` lists, ``module:Class``, or a class
        settings: its settings; those that are not given have their defaults
        context: what its constructor may ask for: `heads`, `head_dim`, `total_steps`
    """
    return FIXES.build(name, settings, **context)
