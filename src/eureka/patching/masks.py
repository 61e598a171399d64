"""Convert the masks and scales of other people's models to those of the operators."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask, visible_keys


def mask_of(mask: Tensor | None, causal: bool = False) -> Mask:
    """A mask as SDPA takes it: nothing, True where visible, or numbers to add."""
    if mask is None:
        return Causal() if causal else NoMask()
    if mask.dtype != torch.bool:
        return Bias(mask)
    if mask.dim() == 4 and mask.shape[1] == 1 and (mask.shape[2] == 1 or mask.stride(2) == 0):
        return KeyPadding(mask[:, 0, 0])  # Hugging Face expands a padding mask over the queries; the cheap statistics apply
    return Dense(mask)


def biased(mask: Mask, bias: Tensor, queries: int, keys: int) -> Bias:
    """A mask that hides the same keys and adds a bias to the logits of the others; by a finite number, as transformers does."""
    if isinstance(mask, Bias):
        return Bias(mask.bias + bias)
    visible = visible_keys(mask, queries, keys, bias.device)
    return Bias(bias if visible is None else torch.where(visible, bias, torch.finfo(bias.dtype).min))


def same_batch(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """One query for all samples, or one set of keys, is repeated, as SDPA does."""
    batch = max(q.shape[0], k.shape[0])
    q, k, v = (x if x.shape[0] == batch else x.expand(batch, *x.shape[1:]) for x in (q, k, v))
    return q, k, v


def heads_axis(shape: Sequence[int], heads: int | None) -> int | None:
    """Where the heads of (…, N, D) or (…, Q, K) are, if not third from behind: behind the samples, and windows behind them.

    >>> heads_axis((2, 4, 9, 16, 8), heads=4), heads_axis((2, 9, 4, 16, 8), heads=4), heads_axis((2, 4, 16, 8), heads=4)
    (1, None, None)
    """
    fits = [axis for axis in range(1, len(shape) - 3) if shape[axis] == heads]
    return fits[0] if len(fits) == 1 and shape[-3] != heads else None


def is_empty(q: Tensor, k: Tensor) -> bool:
    """Whether there is nothing to attend with or to: no sample, no query or no key. The plain code says what comes out."""
    return 0 in (*q.shape[:-1], *k.shape[:-1])


def rescaled(q: Tensor, scale: float | None) -> Tensor:
    """q in the scale of the operators, for which plain softmax is softmax(q·k/√d): T5, for one, uses softmax(q·k)."""
    root = float(q.shape[-1] ** 0.5)
    return q if scale is None or math.isclose(scale * root, 1.0, rel_tol=1e-12) else q * (scale * root)
