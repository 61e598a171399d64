"""The operators as their papers print them: the Q×K matrix, plain operations, automatic gradients.

What the library is measured against; nothing else uses these. They have no floor under the spread and know only the masks that
are benchmarked, as a boolean matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Formula = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]


def softmax(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """softmax(q·k / √d)·v: also the cost of any fixed, learned or scheduled temperature."""
    return _mix(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), v, visible)


def norm_softmax(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """softmax(a / min(√d, s))·v with s the standard deviation of each row of a = q·k over its visible keys."""
    a = q @ k.transpose(-2, -1)
    return _mix(a / _variance(a, visible).sqrt().clamp(max=math.sqrt(q.shape[-1])), v, visible)


def norm_softmax_var(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """The same with the variance."""
    a = q @ k.transpose(-2, -1)
    return _mix(a / _variance(a, visible).clamp(max=math.sqrt(q.shape[-1])), v, visible)


def qk_norm(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """softmax(10·cos(q, k))·v."""
    return _mix(10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1), v, visible)


def qk_layernorm(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """softmax(LN(q)·LN(k) / √d)·v."""
    d = q.shape[-1]
    return softmax(F.layer_norm(q, (d,)), F.layer_norm(k, (d,)), v, visible)


def softmax_plus_one(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """exp(a)·v / (1 + Σ exp(a))."""
    a = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    a = a if visible is None else a.masked_fill(~visible, -math.inf)
    top = a.amax(dim=-1, keepdim=True).clamp_min(0)
    e = (a - top).exp()
    return e / ((-top).exp() + e.sum(dim=-1, keepdim=True)) @ v


def linear(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """(q·k / √d)·v."""
    a = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (a if visible is None else a.masked_fill(~visible, 0.0)) @ v


def sigmoid(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    """σ(q·k / √d - log n)·v."""
    a = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) - math.log(k.shape[-2])).sigmoid()
    return (a if visible is None else a.masked_fill(~visible, 0.0)) @ v


def attention_entropy(q: Tensor, k: Tensor, _v: Tensor, visible: Tensor | None) -> Tensor:
    """-Σ p log p."""
    p = _weights(q, k, visible)
    return -torch.xlogy(p, p).sum(dim=-1)


def participation(q: Tensor, k: Tensor, _v: Tensor, visible: Tensor | None) -> Tensor:
    """Σ p²."""
    return _weights(q, k, visible).square().sum(dim=-1)


def row_spread(q: Tensor, k: Tensor, _v: Tensor, visible: Tensor | None) -> Tensor:
    """The standard deviation of each row."""
    return _variance(q @ k.transpose(-2, -1), visible).sqrt()


FORMULAS: dict[str, Formula] = {
    formula.__name__: formula
    for formula in (norm_softmax, norm_softmax_var, qk_norm, qk_layernorm, softmax_plus_one, linear, sigmoid)
} | {formula.__name__: formula for formula in (attention_entropy, participation, row_spread)}


def formula_of(operator: str) -> tuple[str, Formula]:
    """The formula an operator is measured against, with its name; every temperature costs what plain softmax costs."""
    return (operator, FORMULAS[operator]) if operator in FORMULAS else ("softmax", softmax)


def _weights(q: Tensor, k: Tensor, visible: Tensor | None) -> Tensor:
    a = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    return (a if visible is None else a.masked_fill(~visible, -math.inf)).softmax(dim=-1)


def _mix(a: Tensor, v: Tensor, visible: Tensor | None) -> Tensor:
    return (a if visible is None else a.masked_fill(~visible, -math.inf)).softmax(dim=-1) @ v


def _variance(a: Tensor, visible: Tensor | None) -> Tensor:
    if visible is None:
        return a.var(dim=-1, keepdim=True, correction=0)
    n = visible.sum(dim=-1, keepdim=True)
    shown = a.masked_fill(~visible, 0.0)
    mean = shown.sum(dim=-1, keepdim=True) / n
    return (a - mean).masked_fill(~visible, 0.0).square().sum(dim=-1, keepdim=True) / n
