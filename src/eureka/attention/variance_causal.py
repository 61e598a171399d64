"""Row variances when row i sees the keys up to its own: prefix covariances, chunk by chunk.

Keys before a row's chunk enter through their count, mean and scatter matrix (D×D), carried from chunk to chunk; keys inside the
chunk through their logits. Both are merged by the formula of Chan, Golub and LeVeque (1979), whose terms are all ≥ 0, so that
nothing cancels:

    scatter(A ∪ B) = scatter(A) + scatter(B) + (n_A n_B / (n_A + n_B)) (mean_A - mean_B)²

Memory is O(N·D): chunks of CHUNK rows hold CHUNK logits a row and D²/CHUNK numbers of scatter a key. No row ever reads a number
that depends on a key it does not see. On a processor some heads are done at a time, so that what they need stays in its cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from eureka.attention.rowwise import dot, norm

CHUNK = 64
"""Rows in a chunk. Measured with 1,024 and 4,096 tokens, head dimensions 32 and 64: within 7 % of the best of 32, 64 and 128."""
NEAR = 1 << 18
"""Numbers of the queries that are done at a time: 1 MB in single precision."""


class CausalVariance(Function):
    """var_i over the keys j ≤ i + offset.

    Backward, with g the gradient of var, n the number of visible keys and m the mean logit: ∂a_ij = (2/n_i) g_i (a_ij - m_i).
    Sums over keys of earlier chunks are the same scatter matrices; sums over queries of later chunks are suffix sums of r q qᵀ.
    """

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, offset: int) -> Tensor:
        """q (B, Hk, G, Q, D) with G the query heads per key head, k (B, Hk, K, D) → (B, Hk, G, Q, 1)."""
        layout = Layout.of(q.shape[3], k.shape[2], offset)
        counts = Counts.of(layout, q)
        variance = q.new_empty(*q.shape[:4], 1)
        kept: list[Tensor] = []
        for part in _parts(q):
            base, kc = k[part][:, :, : layout.base], layout.chunk_keys(k[part])
            past = Past.of(base, kc, counts)
            rows = Rows.of(layout.chunk_queries(q[part]), kc, past.mean, past.scatter(base, counts), counts)
            variance[part] = layout.unchunk_rows(rows.variance, *q.shape[2:4])
            kept += (past.centred, past.mean, past.step, rows.pull, rows.gap, rows.deviation)
        ctx.offset = offset
        ctx.save_for_backward(q, k, *kept)
        return variance

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        q, k, *kept = ctx.saved_tensors
        layout = Layout.of(q.shape[3], k.shape[2], ctx.offset)
        counts = Counts.of(layout, q)
        grad_q, grad_k = torch.empty_like(q), torch.empty_like(k)
        for i, part in enumerate(_parts(q)):
            centred, mean, step, pull, gap, deviation = kept[6 * i : 6 * i + 6]
            qc, r = layout.chunk_queries(q[part]), layout.chunk_queries(g[part]) * (2 / counts.all)
            push, inside = gap * r * (counts.own / counts.all), deviation * r
            rows = _flat(pull * r).baddbmm_(_flat(inside), _flat(centred)).baddbmm_(_flat(push * counts.before), _flat(step))
            grad_q[part] = layout.unchunk_rows(rows.view(pull.shape), *q.shape[2:4])
            grad_k[part] = _key_gradient(k[part], qc, Past(centred, mean, step), r, push, inside, layout)
        return grad_q, grad_k, None


class Layout(NamedTuple):
    """How rows and keys fall into chunks: the first `base` keys are seen by every row that sees any, `blind` rows see none."""

    base: int
    blind: int
    rows: int
    keys: int
    chunks: int

    @classmethod
    def of(cls, queries: int, keys: int, offset: int) -> Layout:
        base, blind = min(max(offset, 0), keys), min(max(-offset, 0), queries)
        rows = queries - blind
        return cls(base, blind, rows, min(keys - base, rows), max(1, -(-rows // CHUNK)))

    def chunk_queries(self, q: Tensor) -> Tensor:
        """(B, Hk, G, Q, D) → (B, Hk, T, G·CHUNK, D), the blind rows left out and the last chunk filled with zeros."""
        b, hk, g, _, d = q.shape
        q = _filled(q[:, :, :, self.blind :], self.chunks * CHUNK - self.rows)
        return q.reshape(b, hk, g, self.chunks, CHUNK, d).transpose(2, 3).reshape(b, hk, self.chunks, g * CHUNK, d)

    def unchunk_rows(self, x: Tensor, groups: int, queries: int) -> Tensor:
        """The way back, with zeros for the blind rows."""
        b, hk, t, _, d = x.shape
        x = x.reshape(b, hk, t, groups, CHUNK, d).transpose(2, 3).reshape(b, hk, groups, t * CHUNK, d)
        return x if queries == self.rows == t * CHUNK else F.pad(x[:, :, :, : self.rows], (0, 0, queries - self.rows, 0))

    def chunk_keys(self, k: Tensor) -> Tensor:
        """(B, Hk, K, D) → (B, Hk, T, CHUNK, D), without the base and without keys that no row sees."""
        k = _filled(k[:, :, self.base : self.base + self.keys], self.chunks * CHUNK - self.keys)
        return k.reshape(*k.shape[:2], self.chunks, CHUNK, k.shape[-1])

    def unchunk_keys(self, x: Tensor, keys: int) -> Tensor:
        x = x.flatten(2, 3)[:, :, : self.keys]
        return x if keys == self.keys else F.pad(x, (0, 0, self.base, keys - self.base - self.keys))


class Counts(NamedTuple):
    """How many keys a row or a chunk sees, as numbers that are multiplied with."""

    present: Tensor
    """(T, CHUNK, 1): 1 where a key slot holds a key."""
    full: bool
    """Whether all slots do."""
    before: Tensor
    """(T, 1, 1): keys before each chunk."""
    here: Tensor
    """(T, 1, 1): keys in each chunk."""
    seen: Tensor
    """(T, G·CHUNK, CHUNK): 1 where a row sees a key of its own chunk."""
    own: Tensor
    """(T, G·CHUNK, 1): keys that a row sees of its own chunk."""
    all: Tensor
    """(T, G·CHUNK, 1): keys that a row sees, at least 1."""

    @classmethod
    def of(cls, layout: Layout, q: Tensor) -> Counts:
        groups = q.shape[2]
        slots = torch.arange(layout.chunks * CHUNK, device=q.device)
        present = (slots < layout.keys).to(q.dtype).view(layout.chunks, CHUNK, 1)
        before = layout.base + (slots[::CHUNK] if CHUNK > 1 else slots).clamp_max(layout.keys).to(q.dtype).view(-1, 1, 1)
        seen = (torch.ones(CHUNK, CHUNK, dtype=q.dtype, device=q.device).tril() * present.transpose(1, 2)).repeat(1, groups, 1)
        own = seen.sum(dim=-1, keepdim=True)
        return cls(
            present, layout.keys == len(slots), before, present.sum(dim=1, keepdim=True), seen, own, (before + own).clamp_min(1)
        )


class Past(NamedTuple):
    """The keys of each chunk, and those before it."""

    centred: Tensor
    """The chunk's keys minus their mean, 0 in empty slots, (B, Hk, T, CHUNK, D)."""
    mean: Tensor
    """The mean of the keys before, (B, Hk, T, 1, D)."""
    step: Tensor
    """The chunk's own mean minus that of its past, (B, Hk, T, 1, D)."""

    @classmethod
    def of(cls, base: Tensor, kc: Tensor, counts: Counts) -> Past:
        """From the keys before the first chunk and those of all chunks."""
        own = kc.sum(dim=-2, keepdim=True) / counts.here.clamp_min(1)
        totals = base.sum(dim=2)[:, :, None, None] + running(own * counts.here)
        mean = totals / counts.before.clamp_min(1)
        centred = kc - own if counts.full else (kc - own).mul_(counts.present)
        return cls(centred, mean, own - mean)

    def scatter(self, base: Tensor, counts: Counts) -> Tensor:
        """The scatter matrices of the keys before each chunk, (B, Hk, T, D, D)."""
        weight = counts.before * counts.here / (counts.before + counts.here).clamp_min(1)
        merged = torch.bmm(_flat(self.centred).transpose(1, 2), _flat(self.centred))
        merged.baddbmm_(_flat(self.step * weight).transpose(1, 2), _flat(self.step))
        first = base - base.mean(dim=2, keepdim=True) if base.shape[2] else None
        width = merged.shape[-1]
        return running(
            merged.view(*self.centred.shape[:3], width, width), None if first is None else first.transpose(-2, -1) @ first
        )


class Rows(NamedTuple):
    """What each row of a chunk needs for its variance and for the gradient."""

    variance: Tensor
    pull: Tensor
    """scatter(past)·q"""
    gap: Tensor
    """The mean logit inside the chunk minus that of the past."""
    deviation: Tensor
    """Logits inside the chunk minus the mean of the whole row, 0 where hidden."""

    @classmethod
    def of(cls, qc: Tensor, kc: Tensor, past_mean: Tensor, scatter: Tensor, counts: Counts) -> Rows:
        q = _flat(qc)
        pull = torch.bmm(q, _flat(scatter)).view(qc.shape)
        inside = torch.bmm(q, _flat(kc).transpose(1, 2)).view(*qc.shape[:4], CHUNK).mul_(counts.seen)
        mean = inside.sum(dim=-1, keepdim=True).div_(counts.own.clamp_min(1))
        inside.sub_(mean).mul_(counts.seen)
        gap = (mean - torch.bmm(q, _flat(past_mean).transpose(1, 2)).view(mean.shape)).mul_(counts.own > 0)
        spread = norm(inside).square_().add_(dot(pull, qc))
        variance = spread.addcmul_(gap.square(), counts.before * counts.own / counts.all).div_(counts.all)
        return cls(variance, pull, gap, inside.addcmul_(counts.seen, gap * (counts.before / counts.all)))


def _key_gradient(k: Tensor, qc: Tensor, past: Past, r: Tensor, push: Tensor, inside: Tensor, layout: Layout) -> Tensor:
    """Queries of the same chunk through `inside`; those of later chunks through Σ r q qᵀ (k - mean_past) - Σ push q."""
    centre = k.mean(dim=2)[:, :, None, None]  # any point near the keys: it only keeps the two sums small
    q, shape = _flat(qc), past.centred.shape
    squares = torch.bmm(_flat(qc * r).transpose(1, 2), q)
    pushes = torch.bmm(_flat(past.mean - centre), squares).baddbmm_(_flat(push).transpose(1, 2), q).view(past.mean.shape)
    squares = squares.view(*shape[:3], *squares.shape[1:])
    later = _flat(running(squares, backwards=True))
    shift = torch.bmm(_flat(past.mean + past.step - centre), later).sub_(_flat(running(pushes, backwards=True)))
    grad = torch.bmm(_flat(inside).transpose(1, 2), q).baddbmm_(_flat(past.centred), later).add_(shift)
    whole = layout.unchunk_keys(grad.view(shape), k.shape[2])
    if layout.base:
        base = (k[:, :, : layout.base] - centre[:, :, 0]) @ squares.sum(dim=2) - pushes.sum(dim=2)
        whole = torch.cat([base, whole[:, :, layout.base :]], dim=2)
    return whole


def running(x: Tensor, first: Tensor | None = None, backwards: bool = False) -> Tensor:
    """Sums over the chunks before each one (after each one, when backwards) along dimension 2, from `first` or 0 on.

    >>> running(torch.tensor([1.0, 2.0, 4.0]).view(1, 1, 3)).flatten().tolist()
    [0.0, 1.0, 3.0]
    >>> running(torch.tensor([1.0, 2.0, 4.0]).view(1, 1, 3), backwards=True).flatten().tolist()
    [6.0, 4.0, 0.0]
    """
    total = torch.empty_like(x)
    order = list(range(x.shape[2]))[:: -1 if backwards else 1]
    total[:, :, order[0]] = 0.0 if first is None else first
    for last, one in pairwise(order):
        torch.add(total[:, :, last], x[:, :, last], out=total[:, :, one])
    return total


def _parts(q: Tensor) -> Iterator[tuple[slice, slice]]:
    """Samples and key heads that are done at a time: all at once where memory is not cached, as on a graphics card."""
    samples, heads = q.shape[:2]
    if q.device.type != "cpu":
        yield slice(0, samples), slice(0, heads)
        return
    some = max(1, NEAR // max(1, q[0, 0].numel()))
    for sample in range(samples):
        for head in range(0, heads, some):
            yield slice(sample, sample + 1), slice(head, head + some)


def _filled(x: Tensor, more: int) -> Tensor:
    """With so many rows of zeros after it."""
    return F.pad(x, (0, 0, 0, more)) if more else x


def _flat(x: Tensor) -> Tensor:
    """(B, Hk, T, N, D) → (B·Hk·T, N, D)"""
    return x.reshape(-1, *x.shape[3:])
