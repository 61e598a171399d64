"""NormSoftmax by its weights, a block at a time: what rows of some length take, too short for the fused kernel to pay.

A block stays in the processor's cache from its product to its last pass, and causal blocks leave out the keys that none of their
rows sees. Memory is fetched once for all blocks: fresh pages cost more than what is computed in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.divisor import Divisor
from eureka.attention.explicit import Shown, shown_among
from eureka.attention.mask import Causal, Mask, visible_counts
from eureka.attention.norm_weights import centred, logit_gradient, softened
from eureka.attention.rowwise import norm, side_by_side

BLOCK = 1 << 18
"""Weights in a block, at most: 1 MB in single precision."""
ROWS = 128
"""Rows of a causal block, at most."""


class NormBlocks(Function):
    """softmax(β·q·k)·v."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, floor: Tensor, divisor: Divisor, mask: Mask, learning: bool) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D), floor (B, H, Q, 1), whether to keep the weights → (B, H, Q, D)."""
        ctx.blocks = list(_blocks(q, k, mask))
        mixed = _room(q, v.shape[3])
        beta, variance = q.new_empty(2, *q.shape[:3], 1)
        largest = max(block.size for block in ctx.blocks)
        logits, weights = q.new_empty(2, sum(block.size for block in ctx.blocks) if learning else largest)
        desk = q.new_empty(largest)
        for block in ctx.blocks if learning else (one._replace(start=0) for one in ctx.blocks):
            rows, keys, shown = block.rows, block.keys, block.shown
            c = block.of(logits)
            torch.bmm(q[rows], k[keys].transpose(1, 2), out=c)
            spread = norm(centred(c, shown)).square_().div_(block.seen)
            sharp = divisor.beta(spread, floor[rows])
            p = softened(c, sharp, shown, desk[: block.size].view(c.shape), block.of(weights))
            mixed[rows] = torch.bmm(p, v[keys])
            beta[rows], variance[rows] = sharp, spread
        counts = torch.as_tensor(visible_counts(mask, q.shape[2], k.shape[2], q.device)).clamp_min(1)
        slope = divisor.slope(beta, variance, floor).mul_(2).div_(counts)
        if learning:
            ctx.save_for_backward(q, k, v, beta, slope, logits, weights)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, beta, slope, logits, weights = ctx.saved_tensors
        grad_q, grad_k, grad_v = (_room(one, one.shape[3]) for one in (q, k, v))
        desk = q.new_empty(2, max(block.size for block in ctx.blocks))
        for block in ctx.blocks:
            rows, keys = block.rows, block.keys
            c, p, ahead = block.of(logits), block.of(weights), g[rows]
            h, spare = (one[: block.size].view(c.shape) for one in desk)
            torch.bmm(ahead, v[keys].transpose(1, 2), out=h)
            torch._softmax_backward_data(h, p, -1, p.dtype, grad_input=h)
            a = logit_gradient(h, c, beta[rows], slope[rows], spare)
            grad_q[rows] = torch.bmm(a, k[keys])
            for grad, left, right in ((grad_k[keys], a, q[rows]), (grad_v[keys], p, ahead)):
                part = torch.bmm(left.transpose(1, 2), right)
                grad.copy_(part) if block.first else grad.add_(part)
        return grad_q, grad_k, grad_v, None, None, None, None


def _room(like: Tensor, width: int) -> Tensor:
    """Unwritten numbers for (B, H, N, width), in the memory order of another tensor."""
    b, h, n, _ = like.shape
    return like.new_empty(b, n, h, width).transpose(1, 2) if side_by_side(like) else like.new_empty(b, h, n, width)


Part = tuple[int, slice, slice]
"""A sample, some of its heads, and some of its queries or keys."""


class Block(NamedTuple):
    """Some rows, and the keys that any of them sees."""

    rows: Part
    keys: Part
    shown: Shown | None
    shape: tuple[int, int, int]
    """Heads, rows, keys."""
    start: int
    """Where its weights begin among those of all blocks."""
    first: bool
    """Whether it is the first of its heads; then it sees all of their keys."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def seen(self) -> Tensor | int:
        """How many keys a row sees."""
        return self.shape[-1] if self.shown is None else self.shown.keys

    def of(self, whole: Tensor) -> Tensor:
        """Its part of a number per weight."""
        return whole[self.start : self.start + self.size].view(self.shape)


def _blocks(q: Tensor, k: Tensor, mask: Mask) -> Iterator[Block]:
    """Sample by sample; causal rows from the last to the first, because the last see all keys."""
    (samples, heads, queries), keys = q.shape[:3], k.shape[2]
    shown = shown_among(mask, queries, keys, q)
    whole = shown and Shown(*(one.reshape((1,) * (4 - one.dim()) + tuple(one.shape)) for one in shown))
    causal = isinstance(mask, Causal) and mask.offset == 0 and queries == keys
    high = _even(queries, ROWS) if causal else queries
    some = _even(heads, max(1, BLOCK // (high * keys)))
    size = 0
    for sample in range(samples):
        for head in _slices(heads, some):
            for row in reversed(_slices(queries, high)):
                key = slice(0, row.stop if causal else keys)
                shape = head.stop - head.start, row.stop - row.start, key.stop
                part = whole and _part(whole, sample, head, row, key)
                yield (block := Block((sample, head, row), (sample, head, key), part, shape, size, row.stop == queries))
                size += block.size


def _even(count: int, most: int) -> int:
    """How many to take at a time, at most so many, so that all parts are about alike.

    >>> _even(197, 64)
    50
    """
    parts = -(-count // most)
    return -(-count // parts)


def _slices(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _part(shown: Shown, sample: int, *where: slice) -> Shown:
    """The mask of a block; a dimension of one stands for all."""

    def cut(x: Tensor) -> Tensor:
        own = x[sample if x.shape[0] > 1 else 0]
        return own[tuple(part if size > 1 else slice(None) for part, size in zip(where, own.shape, strict=True))]

    return Shown(*map(cut, shown))
