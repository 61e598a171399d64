"""Several passes over one large tensor, done slab by slab: what one pass leaves in the cache the next one finds there."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

SLAB = 2**18
"""Numbers in a slab. Measured with 20 × 4 × 197 × 64 numbers on a core with 1 MB of cache of its own: two passes in slabs of this
size take half of the time of two passes over everything; a quarter of the size is a little slower."""


def worth_slabs(x: Tensor) -> bool:
    """Whether slabs gain anything: many plain numbers on a processor, and nobody who traces or batches the operations."""
    plain = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
    traced = torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active()
    return plain and not traced and x.dim() == 4 and x.numel() >= 2 * SLAB


def slabs(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same part of each (B, H, N, ·) tensor, part after part: whole samples, or some tokens of one.

    >>> [part.shape[0] for (part,) in slabs(torch.zeros(5, 2, 2**14, 4))]
    [2, 2, 1]
    """
    batch, heads, tokens, d = tensors[0].shape
    samples, rows = max(1, SLAB // (heads * tokens * d)), min(tokens, max(1, SLAB // (heads * d)))
    for i in range(0, batch, samples):
        for j in range(0, tokens, rows):
            yield tuple(tensor[i : i + samples, :, j : j + rows] for tensor in tensors)
