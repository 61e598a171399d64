"""Which keys a query may see: a small value, not a tensor.

The kind decides the path: causal and padded attention stay fused and never become a Q×K matrix by accident.

    NoMask()               every query sees every key
    Causal(offset)         query i sees keys j ≤ i + offset (offset 0 is SDPA's ``is_causal``; K - Q is decoding with a cache)
    KeyPadding(visible)    (B, K) boolean: the same keys for every query of a sample
    Dense(visible)         boolean, broadcastable to (B, H, Q, K); True = visible
    Bias(bias)             float, broadcastable to (B, H, Q, K), added to the logits; -inf hides a key
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eureka.errors import RequestError


@dataclass(frozen=True)
class NoMask:
    """Every query sees every key."""


@dataclass(frozen=True)
class Causal:
    """Query i sees keys j ≤ i + offset."""

    offset: int = 0


@dataclass(frozen=True, eq=False)
class KeyPadding:
    """Every query of a sample sees the same keys."""

    visible: Tensor
    """(B, K) boolean, True = visible."""


@dataclass(frozen=True, eq=False)
class Dense:
    """Any boolean pattern."""

    visible: Tensor
    """Boolean, broadcastable to (B, H, Q, K), True = visible."""


@dataclass(frozen=True, eq=False)
class Bias:
    """A number added to each logit after its inverse temperature."""

    bias: Tensor
    """Float, broadcastable to (B, H, Q, K); -inf hides a key."""


Mask = NoMask | Causal | KeyPadding | Dense | Bias


def as_mask(mask: Mask | Tensor | None) -> Mask:
    """What people pass: nothing, one of the five kinds, or a tensor as SDPA takes it (boolean or float)."""
    if mask is None:
        return NoMask()
    if isinstance(mask, Tensor):
        return Dense(mask) if mask.dtype == torch.bool else Bias(mask)
    if isinstance(mask, (NoMask, Causal, KeyPadding, Dense, Bias)):
        return mask
    raise RequestError(f"a mask is None, a tensor or one of NoMask, Causal, KeyPadding, Dense, Bias, not {type(mask).__name__}.")


def visible_keys(mask: Mask, queries: int, keys: int, device: torch.device | None = None) -> Tensor | None:
    """The mask as a boolean broadcastable to (B, H, Q, K), or None when everything is visible."""
    match mask:
        case NoMask():
            return None
        case Causal(offset):
            return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(offset)
        case KeyPadding(visible):
            return visible[:, None, None, :]
        case Dense(visible):
            return visible
        case Bias(bias):
            return bias > float("-inf")
