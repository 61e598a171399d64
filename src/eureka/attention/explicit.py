"""Attention by its Q×K matrix: what the operators outside the softmax family need, and what is fastest for short sequences."""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from eureka.attention.fused import repeat_heads
from eureka.attention.mask import Bias, Mask, visible_counts, visible_keys


def wide(x: Tensor) -> Tensor:
    """At least single precision: logits and their statistics do not survive 8 bits."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """Inside, autocast leaves products alone."""
    kind = x.device.type
    return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else contextlib.nullcontext()


def logits_of(q: Tensor, k: Tensor) -> Tensor:
    """q·k as a (B, H, Q, K) matrix, grouped heads made whole."""
    return wide(q) @ repeat_heads(wide(k), q.shape[1]).transpose(-2, -1)


class Shown(NamedTuple):
    """A mask as numbers for a Q×K matrix: `masked_fill` takes five times as long as a product."""

    seen: Tensor
    """1 where visible, else 0."""
    added: Tensor
    """The bias where visible, else a number so low that its exponential is 0."""
    keys: Tensor
    """Visible keys of each row, at least 1."""
    alive: Tensor
    """1 for a row that sees a key, or one whose keys are hidden by finite numbers; else 0."""


def shown(logits: Tensor, mask: Mask, lowest: float | None = None) -> Shown | None:
    """The mask for these logits, or None when everything is visible; `lowest` is not -inf unless asked for: the gradient of a
    row that sees nothing would be NaN."""
    queries, keys = logits.shape[-2:]
    return shown_among(mask, queries, keys, logits, lowest)


def shown_among(mask: Mask, queries: int, keys: int, like: Tensor, lowest: float | None = None) -> Shown | None:
    """The same for logits that are not made yet; of another tensor's type, where it is."""
    visible = visible_keys(mask, queries, keys, like.device)
    if visible is None:
        return None
    low = torch.finfo(like.dtype).min / 2 if lowest is None else lowest
    bias = mask.bias.to(like.dtype) if isinstance(mask, Bias) else torch.zeros((), dtype=like.dtype, device=like.device)
    if lowest is None and isinstance(mask, Bias):
        bias = bias.clamp_min(low / 2)  # as good as hidden, but never under a key that is
    count = torch.as_tensor(visible_counts(mask, queries, keys, like.device)).to(like.dtype)
    alive = count.clamp_max(1)
    added = torch.where(visible, bias, low)
    if lowest != 0.0 and isinstance(mask, Bias):
        finite = (count == 0) & (mask.bias > -math.inf)  # a row that is hidden by finite numbers: softmax sees those
        added = torch.where(finite, bias, added)
        alive = torch.where(finite.any(dim=-1, keepdim=True), 1.0, alive)
    return Shown(visible.to(like.dtype), added, count.clamp_min(1), alive)


def masked_softmax(logits: Tensor, mask: Mask) -> Tensor:
    """softmax over the visible keys, with the bias; a row that sees nothing: zeros, and zero gradients."""
    rest = shown(logits, mask)
    if rest is None:
        return logits.softmax(dim=-1)
    return (logits + rest.added).softmax(dim=-1) * rest.alive


def mix(weights: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """weights·v, with dropout on the weights as everywhere."""
    if dropout > 0.0:
        weights = F.dropout(weights, dropout)
    return weights.to(v.dtype) @ repeat_heads(v, weights.shape[1])
