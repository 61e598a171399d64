"""Which keys a query may see: a small value, not a tensor.

The kind decides the path: causal and padded attention stay fused and never become a Q×K matrix by accident.

    NoMask()               every query sees every key
    Causal(offset)         query i sees keys j ≤ i + offset (offset 0 is SDPA's ``is_causal``; K - Q is decoding with a cache)
    KeyPadding(visible)    (B, K) boolean: the same keys for every query of a sample
    Dense(visible)         boolean, broadcastable to (B, H, Q, K); True = visible
    Bias(bias)             float, broadcastable to (B, H, Q, K), added to the logits; -inf, or less than -9,000, hides a key

A query that sees no key gets zeros, as in SDPA. If its keys are hidden by finite numbers, as in the eager attention of Hugging
Face, it gets what softmax makes of them: the mean of all values.
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
    """A number added to each logit after its inverse temperature.

    The statistics of a row (its spread, its number of keys) are those of the logits q·k *without* the bias, over the keys that
    the bias does not hide: a position bias says where to look, not how far apart the contents are, and a spread that included
    it would let a steep bias switch the normalisation of the content off.
    """

    bias: Tensor
    """Float, broadcastable to (B, H, Q, K); -inf hides a key, and so does a number that is not above `NEVER`."""


NEVER = -9_000.0
"""People hide a key by a bias of -inf, finfo.min, -1e9 or -1e4: statistics skip such a key."""

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
    if isinstance(mask, NoMask):
        return None
    if isinstance(mask, Causal):
        return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(mask.offset)
    if isinstance(mask, KeyPadding):
        return mask.visible[:, None, None, :]
    if isinstance(mask, Dense):
        return mask.visible
    return mask.bias > NEVER


def hides_later_keys(mask: Mask, queries: int, keys: int) -> bool:
    """Whether no query sees a key that comes after it, counted from the end if there are more keys than queries.

    Padding that is hidden from all queries alike is no such mask.

    >>> hides_later_keys(Causal(), 3, 3), hides_later_keys(Dense(torch.ones(3, 3).tril().bool()), 3, 3)
    (True, True)
    >>> hides_later_keys(NoMask(), 3, 3), hides_later_keys(KeyPadding(torch.tensor([[True, True, False]])), 3, 3)
    (False, False)
    """
    visible = visible_keys(mask, queries, keys)
    if visible is None or visible.shape[-2] == 1:
        return False
    return not bool(visible.triu(1 + keys - queries).any()) and bool((visible != visible[..., :1, :]).any())


def visible_counts(mask: Mask, queries: int, keys: int, device: torch.device | None = None) -> int | Tensor:
    """How many keys each row sees: one number, or integers broadcastable to (B, H, Q, 1).

    >>> visible_counts(Causal(), 4, 3).flatten().tolist()
    [1, 2, 3, 3]
    """
    if isinstance(mask, NoMask):
        return keys
    if isinstance(mask, Causal):
        return (torch.arange(queries, device=device) + (mask.offset + 1)).clamp(0, keys).unsqueeze(-1)
    visible = visible_keys(mask, queries, keys, device)
    assert visible is not None
    return over_keys(visible, keys).sum(dim=-1, keepdim=True)


def visible_mean(values: Tensor, mask: Mask, queries: int) -> Tensor:
    """The mean of one number per key over the keys each row sees: (B, H, K) → (B, H, Q or 1, 1); 0 where it sees none."""
    keys = values.shape[-1]
    if isinstance(mask, NoMask):
        return values.mean(dim=-1)[..., None, None]
    counts = torch.as_tensor(visible_counts(mask, queries, keys, values.device)).clamp_min(1)
    if isinstance(mask, Causal):
        totals = values.cumsum(dim=-1)
        if mask.offset or queries != keys:
            last = (torch.arange(queries, device=values.device) + mask.offset).clamp(-1, keys - 1) + 1
            totals = torch.nn.functional.pad(totals, (1, 0))[..., last]
        return totals.unsqueeze(-1) / counts
    if isinstance(mask, KeyPadding):
        return (values * mask.visible[:, None]).sum(dim=-1)[..., None, None] / counts
    visible = visible_keys(mask, queries, keys, values.device)
    assert visible is not None
    seen = over_keys(visible.reshape((1,) * (4 - visible.dim()) + tuple(visible.shape)), keys).to(values.dtype)
    if seen.shape[1] > 1:
        return seen @ values.unsqueeze(-1) / counts
    totals = seen.squeeze(1) @ values.transpose(-2, -1)  # all heads at once, so that the mask is not copied for each
    return totals.transpose(-2, -1).unsqueeze(-1) / counts


def over_keys(mask: Tensor, keys: int) -> Tensor:
    """A mask tensor that may be broadcast over the keys, with its last dimension made whole."""
    return mask.expand(*mask.shape[:-1], keys)


def rows_of(mask: Mask, rows: slice) -> Mask:
    """The mask of some of the queries: those of a slice with a start.

    >>> rows_of(Causal(), slice(64, 128))
    Causal(offset=64)
    """
    if isinstance(mask, Causal):
        return Causal(mask.offset + int(rows.start))
    if isinstance(mask, Dense):
        return Dense(tensor_rows(mask.visible, rows))
    if isinstance(mask, Bias):
        return Bias(tensor_rows(mask.bias, rows))
    return mask


def tensor_rows(mask: Tensor, rows: slice) -> Tensor:
    """The rows of a mask tensor that may be broadcast over the queries."""
    return mask if mask.dim() < 2 or mask.shape[-2] == 1 else mask[..., rows, :]
