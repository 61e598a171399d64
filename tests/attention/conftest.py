"""A second answer for every operator: one row of one head at a time, from the formula, sharing no code with the library."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, NoMask
from eureka.attention.operator import make_operator

EXPLICIT = ["sinkhorn", "qr"]
"""Operators whose rows depend on each other."""


def seen_by(mask: Any, shape: tuple[int, int, int, int]) -> np.ndarray[Any, Any]:
    """Whether query i of head h of sample b sees key j, from the meaning of the mask: (B, H, Q, K)."""
    rows, columns = np.indices(shape[2:])
    if isinstance(mask, Causal):
        shown = columns <= rows + mask.offset
    elif isinstance(mask, KeyPadding):
        shown = mask.visible.numpy()[:, None, None, :]
    elif isinstance(mask, Dense):
        shown = mask.visible.numpy()
    elif isinstance(mask, Bias):
        shown = ~np.isneginf(mask.bias.detach().numpy())
    else:
        shown = np.ones(shape, dtype=bool)
    return np.broadcast_to(shown, shape)


def spread(a: Tensor, statistic: str, q: Tensor, keys: Tensor) -> Tensor | None:
    """The spread of one row, or None when it is within 64 roundings of the largest the logits could be."""
    variance = ((a - a.sum() / len(a)) ** 2).sum() / len(a)
    floor = 64 * torch.finfo(a.dtype).eps * math.sqrt((q @ q).item() * (keys * keys).sum().item() / len(a))
    s = variance.item() ** 0.5 if statistic == "std" else variance.item()
    if s <= max(floor, 1e-10):
        return None
    return variance**0.5 if statistic == "std" else variance


def one_row(name: str, operator: Any, h: int, q: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
    """The weights of one query over the keys that it sees."""
    root, n = math.sqrt(len(q)), len(keys)
    a = (keys * q).sum(1)
    if name.startswith("norm_softmax"):
        cap = root if operator.cap == "sqrt_d" else operator.cap
        s = spread(a, operator.statistic, q, keys)
        by: Any = (root if cap is None else cap) if s is None else s if cap is None else min(s, cap)
        return exponentials(a / by + bias)
    if name == "qk_norm":
        lengths = (q @ q) ** 0.5 * (keys * keys).sum(1) ** 0.5
        return exponentials(operator.gain[h] * a / lengths + bias)
    if name == "qk_layernorm":
        q, keys = standard(q) * operator.norm_q.weight, standard(keys) * operator.norm_k.weight
        return exponentials(keys @ q / root + bias)
    if name == "softmax_plus_one":
        top = (a / root + bias).max().detach().clamp_min(0)
        e = (a / root + bias - top).exp()
        return e / ((-top).exp() + e.sum())
    if name == "sigmoid":
        return 1 / (1 + (-(a / root + bias - math.log(n))).exp())
    if name == "linear":
        return a / root + bias
    betas: dict[str, Callable[[], Any]] = {
        "softmax": lambda: 1 / root,
        "gradient_balance": lambda: 1 / root,
        "temperature": lambda: 1 / operator.temperature,
        "heat_treatment": lambda: 1 / operator.start,
        "learnable_temperature": lambda: 1 / operator.log_temperature[h].exp(),
        "ssmax": lambda: operator.scale[h] * math.log(n) / root,
    }
    return exponentials(a * betas[name]() + bias)


def exponentials(a: Tensor) -> Tensor:
    e = (a - a.max().detach()).exp()
    return e / e.sum()


def standard(x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred**2).mean(-1, keepdim=True) + 1e-5) ** 0.5


def one_head(name: str, operator: Any, a: Tensor, shown: Tensor) -> Tensor:
    """The weights of one head whose rows depend on each other; `a` are its logits with bias, `shown` what is visible."""
    if name == "sinkhorn":
        p = torch.where(shown, (a - a.max().detach()).exp(), 0.0)
        for step in range(2 * operator.iterations + 1):
            total = p.sum(dim=1 if step % 2 == 0 else 0, keepdim=True)
            p = p / torch.where(total > 0, total, 1.0)
        return p
    a = torch.where(shown, a, 0.0)
    rows: list[Tensor] = []
    ridge = 1e-6 * (a**2).sum() / len(a) + 1.2e-38
    gram = a @ a.T + ridge * torch.eye(len(a), dtype=a.dtype)
    lower = torch.zeros_like(gram)
    for i in range(len(a)):  # Cholesky and forward substitution, by hand
        for j in range(i + 1):
            rest = gram[i, j] - sum((lower[i, m] * lower[j, m] for m in range(j)), torch.zeros((), dtype=a.dtype))
            value = rest**0.5 if i == j else rest / lower[j, j]
            lower = lower + value * torch.tensor(np.eye(1, lower.numel(), i * len(a) + j).reshape(lower.shape), dtype=a.dtype)
        row = a[i] - sum((lower[i, m] * rows[m] for m in range(i)), torch.zeros_like(a[i]))
        rows.append(row / lower[i, i])
    squares = torch.stack(rows) ** 2 * shown
    n = shown.sum(1, keepdim=True).clamp_min(1)
    return squares + (1 - squares.sum(1, keepdim=True)) * shown / n


def by_hand(name: str, operator: Any, q: Tensor, k: Tensor, v: Tensor, mask: Any = None) -> Tensor:
    """The attention of `operator`, (B, H, Q, D), from its published formula."""
    mask = NoMask() if mask is None else mask
    weights = weights_by_hand(name, operator, q, k, mask)
    group = q.shape[1] // k.shape[1]
    return torch.stack([torch.stack([weights[b, h] @ v[b, h // group] for h in range(q.shape[1])]) for b in range(q.shape[0])])


def weights_by_hand(name: str, operator: Any, q: Tensor, k: Tensor, mask: Any) -> Tensor:
    (batch, heads, queries, d), keys = q.shape, k.shape[2]
    bias = torch.zeros((), dtype=q.dtype)
    if isinstance(mask, Bias):
        bias = torch.where(mask.bias > -math.inf, mask.bias, 0.0)
    bias = bias.expand(batch, heads, queries, keys)
    samples = []
    everything = torch.tensor(seen_by(mask, (batch, heads, queries, keys)).copy())
    for b in range(batch):
        for h in range(heads):
            key = k[b, h * k.shape[1] // heads]
            shown = everything[b, h]
            if name in EXPLICIT:
                samples.append(one_head(name, operator, q[b, h] @ key.T / math.sqrt(d) + bias[b, h], shown))
                continue
            rows = []
            for i in range(queries):
                seen = shown[i].nonzero().flatten()
                row = torch.zeros(keys, dtype=q.dtype)
                if len(seen):
                    row = row.index_put((seen,), one_row(name, operator, h, q[b, h, i], key[seen], bias[b, h, i, seen]))
                rows.append(row)
            samples.append(torch.stack(rows))
    return torch.stack(samples).reshape(batch, heads, queries, keys)


def make_masks(batch: int, heads: int, queries: int, keys: int, dtype: torch.dtype) -> dict[str, Any]:
    """One of each kind; each hides a whole row somewhere where it can."""
    g = torch.Generator().manual_seed(3)
    padding = torch.rand(batch, keys, generator=g) > 0.3
    padding[0, 0] = True
    if batch > 1:
        padding[-1, 1:] = False  # the last sample sees at most one key
    dense = torch.rand(batch, 1, queries, keys, generator=g) > 0.4
    dense[0, 0, queries // 2] = False
    bias = torch.randn(1, heads, queries, keys, generator=g, dtype=torch.float64)
    bias = bias.masked_fill(torch.rand(bias.shape, generator=g) > 0.8, -math.inf)
    bias[0, 0, 1] = -math.inf
    return {
        "none": None,
        "causal": Causal(),
        "causal from a cache": Causal(max(keys - queries, 2)),
        "causal with blind rows": Causal(-2),
        "padding": KeyPadding(padding),
        "dense": Dense(dense),
        "bias": Bias(bias.to(dtype)),
    }


def inputs(shape: tuple[int, ...], scale: float, dtype: torch.dtype, offset: float = 0.5) -> list[Tensor]:
    """q, k and v with gradients; keys with a common part, as real ones have."""
    batch, heads, groups, queries, keys, d = shape
    g = torch.Generator().manual_seed(1)
    q = torch.randn(batch, heads, queries, d, generator=g, dtype=torch.float64) * scale
    k = (torch.randn(batch, groups, keys, d, generator=g, dtype=torch.float64) + offset) * scale
    v = torch.randn(batch, groups, keys, d, generator=g, dtype=torch.float64)
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def answer(attention: Callable[..., Tensor], tensors: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    """The output and its gradients by all tensors and parameters, for one fixed direction."""
    out = attention(*tensors)
    g = torch.Generator().manual_seed(2)
    direction = torch.randn(out.shape, generator=g, dtype=torch.float64).to(out.dtype)
    gradients = torch.autograd.grad(out, [*tensors, *parameters], direction, allow_unused=True, materialize_grads=True)
    return [out, *gradients]


class Bench:
    """What the tests of this folder share, as one fixture."""

    by_hand = staticmethod(by_hand)
    weights_by_hand = staticmethod(weights_by_hand)
    masks = staticmethod(make_masks)
    inputs = staticmethod(inputs)
    answer = staticmethod(answer)

    @staticmethod
    def make(name: str, heads: int, d: int, settings: dict[str, Any] | None = None, dtype: torch.dtype = torch.float64) -> Any:
        return make_operator(name, settings, heads=heads, head_dim=d, total_steps=100).to(dtype)


@pytest.fixture(scope="session")
def twin() -> Bench:
    return Bench()
