"""Attention by its Q×K matrix: what the operators outside the softmax family need, and what is fastest for short sequences."""

from __future__ import annotations

import contextlib
import math
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor

from eureka.attention.fused import repeat_heads
from eureka.attention.mask import Bias, Mask, visible_keys


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


def add_bias(logits: Tensor, mask: Mask) -> Tensor:
    """The logits with the mask's bias added, -inf read as 0: hiding is done by `visible_in`."""
    if not isinstance(mask, Bias):
        return logits
    return logits + torch.where(mask.bias > -math.inf, mask.bias, 0.0)


def visible_in(logits: Tensor, mask: Mask) -> Tensor | None:
    """The mask as a boolean for these logits, or None when everything is visible."""
    return visible_keys(mask, logits.shape[-2], logits.shape[-1], logits.device)


def masked_softmax(logits: Tensor, mask: Mask) -> Tensor:
    """softmax over the visible keys, with the bias; a row that sees nothing: zeros, and zero gradients."""
    visible = visible_in(logits, mask)
    logits = add_bias(logits, mask)
    if visible is None:
        return logits.softmax(dim=-1)
    lowest = torch.finfo(logits.dtype).min  # not -inf: the gradient of a row without any key would be NaN
    return logits.masked_fill(~visible, lowest).softmax(dim=-1).masked_fill(~visible, 0.0)


def mix(weights: Tensor, v: Tensor, dropout: float = 0.0) -> Tensor:
    """weights·v, with dropout on the weights as everywhere."""
    if dropout > 0.0:
        weights = F.dropout(weights, dropout)
    return weights.to(v.dtype) @ repeat_heads(v, weights.shape[1])
