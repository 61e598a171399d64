"""The paper's control: plain softmax forward, q and k gradients as large as v's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.extras import Extras
from eureka.attention.mask import Mask
from eureka.attention.softmax import Softmax


class GradientBalance(Softmax):
    """softmax(q·k / √d)·v whose backward pass multiplies the gradients of q and k to the root mean square of v's.

    It asks whether small gradients alone are the trouble. A gradient of exactly zero stays zero.
    """

    needs_values = True

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        return super().forward(*balanced(q, k, v), mask, dropout)

    def with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0
    ) -> tuple[Tensor, Tensor]:
        return super().with_weights(*balanced(q, k, v), mask, dropout)

    def with_extras(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, dropout: float, extras: Extras
    ) -> tuple[Tensor, Tensor]:
        return super().with_extras(*balanced(q, k, v), mask, dropout, extras)


def balanced(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v themselves; backward, the gradients of q and k are as large as v's."""
    q, k, v = Balance.apply(q, k, v)  # type: ignore[no-untyped-call]
    return q, k, v


class Balance(Function):
    """The identity on (q, k, v); backward: ∂q and ∂k times rms(∂v)/rms(∂q) and rms(∂v)/rms(∂k)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return q.view_as(q), k.view_as(k), v.view_as(v)

    @staticmethod
    def setup_context(*_: Any) -> None:
        """Backward needs its gradients only."""

    @staticmethod
    @once_differentiable
    def backward(_: Any, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        wanted = rms(v)
        return _scaled_to(q, wanted), _scaled_to(k, wanted), v


def rms(x: Tensor) -> Tensor:
    """√(mean x²)."""
    size: Tensor = torch.linalg.vector_norm(x) / float(x.numel() ** 0.5)
    return size


def _scaled_to(x: Tensor, size: Tensor) -> Tensor:
    own = rms(x)
    return x * torch.where(own > 0, size / own.masked_fill(own == 0, 1.0), 0.0)
