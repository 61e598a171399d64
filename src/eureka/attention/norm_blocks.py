"""NormSoftmax by its weights, a block at a time: what rows of some length take, too short for the fused kernel to pay.

A block stays in the processor's cache from its product to its last pass. Causal blocks leave out the keys that none of their rows
sees, and need a mask only for their last keys. What backward needs is kept block by block: very large pieces of memory go back to
the system each time, and come as fresh pages that cost more than what is computed in them.
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
"""Weights in a block, on average: 1 MB in single precision."""
ROWS = 128
"""Rows of a causal block, at most."""
KEPT = 5
"""Weights are kept for backward up to this many head dimensions of keys; of longer rows only the logits are, and the weights are
made again. With head dimension 64 keeping both is 5 % faster at 197 tokens, level from 512 on, and takes twice the memory."""


class NormBlocks(Function):
    """softmax(β·q·k)·v."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, floor: Tensor, divisor: Divisor, mask: Mask, learning: bool) -> Tensor:
        """q (B, H, Q, D), k and v (B, H, K, D), floor (B, H, Q, 1), whether to keep what backward needs → (B, H, Q, D)."""
        ctx.blocks = list(_blocks(q, k, mask))
        mixed, (beta, variance) = _room(q, v.shape[3]), q.new_empty(2, *q.shape[:3], 1)
        by_rows, by_keys = _Samples.of(q, floor, beta, variance, mixed), _Samples.of(k, v)
        desks = _Desks(q, 2, ctx.blocks)
        keep_weights = learning and k.shape[2] <= KEPT * q.shape[3]
        logits, weights = [], []
        for block in ctx.blocks:
            own_q, own_floor, own_beta, own_variance, own_mixed = by_rows.at(block.rows)
            own_k, own_v = by_keys.at(block.keys)
            first, second = desks[block.shape]
            c = torch.bmm(own_q, own_k.transpose(1, 2), out=None if learning else first)
            spread = norm(block.centred(c)).square_().div_(block.seen)
            sharp = divisor.beta(spread, own_floor)
            p = block.softened(c, sharp, second, None if keep_weights else second)
            own_mixed.copy_(torch.bmm(p, own_v))
            own_beta.copy_(sharp)
            own_variance.copy_(spread)
            logits += [c] if learning else []
            weights += [p] if keep_weights else []
        counts = torch.as_tensor(visible_counts(mask, q.shape[2], k.shape[2], q.device)).clamp_min(1)
        slope = divisor.slope(beta, variance, floor).mul_(2).div_(counts)
        if learning:
            ctx.save_for_backward(q, k, v, beta, slope, *logits, *weights)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, beta, slope, *kept = ctx.saved_tensors
        logits, weights = kept[: len(ctx.blocks)], kept[len(ctx.blocks) :]
        grads = [_room(one, one.shape[3]) for one in (q, k, v)]
        by_rows, by_keys = _Samples.of(q, g, beta, slope, grads[0]), _Samples.of(k, v, *grads[1:])
        desks = _Desks(q, 3, ctx.blocks)
        for i, block in reversed(list(enumerate(ctx.blocks))):  # what was made last is still near
            own_q, ahead, sharp, steep, grad_q = by_rows.at(block.rows)
            own_k, own_v, grad_k, grad_v = by_keys.at(block.keys)
            h, spare, made = desks[block.shape]
            c = logits[i]
            p = weights[i] if weights else block.softened(c, sharp, made, made)
            torch.bmm(ahead, own_v.transpose(1, 2), out=h)
            torch._softmax_backward_data(h, p, -1, p.dtype, grad_input=h)
            a = logit_gradient(h, c, sharp, steep, spare)
            grad_q.copy_(torch.bmm(a, own_k))
            for grad, left, right in ((grad_k, a, own_q), (grad_v, p, ahead)):
                part = torch.bmm(left.transpose(1, 2), right)
                grad.copy_(part) if block.last else grad.add_(part)
        return *grads, None, None, None, None


def _room(like: Tensor, width: int) -> Tensor:
    """Unwritten numbers for (B, H, N, width), in the memory order of another tensor."""
    b, h, n, _ = like.shape
    return like.new_empty(b, n, h, width).transpose(1, 2) if side_by_side(like) else like.new_empty(b, h, n, width)


class Part(NamedTuple):
    """A sample, some of its heads, and some of its queries or keys; None stands for all."""

    sample: int
    heads: slice | None
    tokens: slice | None


class _Samples(NamedTuple):
    """Tensors (B, H, N, …) that are cut alike. Every cut is a call, and short rows have many: samples are parted in one."""

    each: list[tuple[Tensor, ...]]

    @classmethod
    def of(cls, *tensors: Tensor) -> _Samples:
        return cls(list(zip(*(one.unbind(0) for one in tensors), strict=True)))

    def at(self, part: Part) -> list[Tensor]:
        cut: list[Tensor] = list(self.each[part.sample])
        if part.heads is not None:
            cut = [one[part.heads] for one in cut]
        return cut if part.tokens is None else [one[:, part.tokens] for one in cut]


class _Desks(dict[tuple[int, int, int], tuple[Tensor, ...]]):
    """So many pieces of room for the numbers of a block, by its shape; all blocks share them."""

    def __init__(self, like: Tensor, count: int, blocks: list[Block]) -> None:
        shapes = {block.shape for block in blocks}
        whole = like.new_empty(count, max(map(math.prod, shapes)))
        super().__init__({shape: tuple(one[: math.prod(shape)].view(shape) for one in whole) for shape in shapes})


class Block(NamedTuple):
    """Some rows, and the keys that any of them sees."""

    rows: Part
    keys: Part
    shape: tuple[int, int, int]
    """Heads, rows, keys."""
    free: int
    """The first keys, which every row sees."""
    shown: Shown | None
    """What each row sees of the keys after them."""
    last: bool
    """Whether it is the last of its heads; then it sees all of their keys."""

    @property
    def seen(self) -> Tensor | int:
        """How many keys a row sees."""
        return self.shape[-1] if self.shown is None else self.shown.keys

    def centred(self, a: Tensor) -> Tensor:
        """The logits minus the mean of the visible ones, 0 where hidden. They are overwritten."""
        if self.shown is None or not self.free:
            return centred(a, self.shown)
        masked = a[..., self.free :].mul_(self.shown.seen)
        a.sub_(a.sum(dim=-1, keepdim=True).div_(self.shown.keys))
        masked.mul_(self.shown.seen)
        return a

    def softened(self, c: Tensor, beta: Tensor, desk: Tensor, out: Tensor | None) -> Tensor:
        """softmax(β·c + bias); `desk` is room for what is scaled, `out` for what comes of it, and may be the same."""
        if self.shown is None or not self.free:
            return softened(c, beta, self.shown, desk, out)
        torch.mul(c, beta, out=desk)[..., self.free :].add_(self.shown.added)
        return torch.softmax(desk, -1, out=out)


def triangular(mask: Mask, q: Tensor, k: Tensor) -> bool:
    """Whether row i sees the keys up to i, of as many."""
    return isinstance(mask, Causal) and mask.offset == 0 and q.shape[2] == k.shape[2]


def _blocks(q: Tensor, k: Tensor, mask: Mask) -> Iterator[Block]:
    """Sample by sample, the first rows first; backward goes the other way."""
    (samples, heads, queries), keys = q.shape[:3], k.shape[2]
    triangle = triangular(mask, q, k)
    bands = _triangle(q) if triangle else [_whole(q, k, mask)]
    some = _even(heads, max(1, BLOCK * len(bands) // sum(band.area for band in bands)))
    for sample in range(samples):
        for head in _slices(heads, some):
            own = None if some >= heads else head
            for band in bands:
                yield Block(
                    Part(sample, own, None if band.stop - band.start == queries else slice(band.start, band.stop)),
                    Part(sample, own, None if band.keys == keys else slice(0, band.keys)),
                    (head.stop - head.start, band.stop - band.start, band.keys),
                    band.free,
                    band.shown and (band.shown if triangle else _part(band.shown, sample, head)),
                    band is bands[-1],
                )


class _Band(NamedTuple):
    """The same rows of all heads, how many keys they see, how many of these all of them, and a mask for the rest."""

    start: int
    stop: int
    keys: int
    free: int
    shown: Shown | None

    @property
    def area(self) -> int:
        return (self.stop - self.start) * self.keys


def _whole(q: Tensor, k: Tensor, mask: Mask) -> _Band:
    """All rows and keys; the mask has samples and heads, a dimension of one standing for all."""
    queries, keys = q.shape[2], k.shape[2]
    shown = shown_among(mask, queries, keys, q)
    full = shown and Shown(*(one.reshape((1,) * (4 - one.dim()) + tuple(one.shape)) for one in shown))
    return _Band(0, queries, keys, 0, full)


def _triangle(q: Tensor) -> list[_Band]:
    """Where row i sees the keys up to i: the mask of a band is a corner of one small triangle."""
    count = q.shape[2]
    corner = shown_among(Causal(), _even(count, ROWS), _even(count, ROWS), q)
    assert corner is not None
    bands = []
    for rows in _slices(count, _even(count, ROWS)):
        own = slice(0, rows.stop - rows.start)
        keys = torch.arange(rows.start + 1, rows.stop + 1, dtype=q.dtype, device=q.device).unsqueeze(-1)
        shown = Shown(corner.seen[..., own, own], corner.added[..., own, own], keys, corner.alive[..., own, :])
        bands.append(_Band(rows.start, rows.stop, rows.stop, rows.start, shown))
    return bands


def _even(count: int, most: int) -> int:
    """How many to take at a time, at most so many, so that all parts are about alike.

    >>> _even(197, 64)
    50
    """
    parts = -(-count // most)
    return -(-count // parts)


def _slices(count: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _part(shown: Shown, sample: int, head: slice) -> Shown:
    """The mask of some heads of a sample."""

    def cut(x: Tensor) -> Tensor:
        own = x[sample if x.shape[0] > 1 else 0]
        return own[head] if own.shape[0] > 1 else own

    return Shown(*map(cut, shown))
