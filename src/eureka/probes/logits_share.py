"""The position share of the logits: by how much a query tells keys apart by their position, and not by their content.

A row of a sample is l_j = q·k_j + bias_j/β over the keys j that query q sees: the softmax gets β times that. (A fix that gives
each row its own β makes a row no more important: a row counts by the spread of its q·k.) Positions are the same for every sample
and content is not, so the part of key j that is position is its mean over samples, k̄_j. Then

    l_j = p_j + c_j,   p_j = q·k̄_j + bias_j/β,   c_j = q·(k_j - k̄_j)
    var_j(l) = cov_j(l, p) + cov_j(l, c)
    share = Σ cov_j(l, p) / Σ var_j(l),   both sums over samples and rows

The shares of position and content add up to 1. The query is held: one that looks for a place counts as position, whatever its own
content, and on fresh weights the share is about that of the input. (The part of the *logits* that is the same for every sample is
another question: it misses content that asks for a place, and on fresh weights it is about the square of the share of the input.)

k̄_j is the mean over the *other* samples. With the sample itself, 1/B of k̄_j would be its own content, and the share of pure
content 1/B instead of 0. Without it the estimate is unbiased, as cov(l, p) is linear in k̄; on few samples it may fall below 0.

What stands at the same place in every sample counts as position: a class token, and the mean content of a place. So the share may
be well above that of the input: on fresh `tiles` it is 17 % beside 3 %.

Other samples count for key j if they see it; keys that no other sample sees, and rows that are left with fewer than two keys, do
not count.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eureka.attention.explicit import full_precision, wide
from eureka.attention.fused import repeat_heads
from eureka.attention.mask import NEVER, Bias, Mask, rows_of, visible_keys
from eureka.attention.variance import row_blocks
from eureka.patching.attach import AttentionCall
from eureka.probes.head_statistics import first_samples, logit_factors


@torch.no_grad()
def logits_share(call: AttentionCall, samples: int | None = None) -> list[float]:
    """The share of each head, from the first `samples` of the batch; NaN with fewer than two, or if all are alike."""
    q, k, mask = first_samples(call, samples)
    if are_alike(k) and (call.v is None or are_alike(call.v[: len(k)])):
        return [math.nan] * q.shape[1]
    with full_precision(q):
        q, k, beta = logit_factors(call, q, k, mask)
        q, k = wide(q), repeat_heads(wide(k), q.shape[1])
        k = k - k.mean(dim=(0, 2), keepdim=True)  # one shift for all samples moves no covariance, and less is rounded
        by_position, whole = _row_sums(q, k, mask, torch.as_tensor(beta, dtype=q.dtype, device=q.device).expand(*q.shape[:3], 1))
    shares: list[float] = (by_position / whole).tolist()
    return shares


def are_alike(x: Tensor) -> bool:
    """Whether all samples are the same; so is a single one."""
    return bool((x == x[:1]).all())


def _row_sums(q: Tensor, k: Tensor, mask: Mask, beta: Tensor) -> tuple[Tensor, Tensor]:
    """Σ cov_j(l, p) and Σ var_j(l) of each head, a block of rows at a time."""
    held = _held(k, mask, q.shape[2])
    k_others, others = _mean_of_others(k, held[:, None, :, None])
    sums = []
    for rows in row_blocks(q, k.shape[2]):
        part, q_rows = rows_of(mask, rows), q[:, :, rows]
        bias, bias_others = _biases(part, beta[:, :, rows])
        counted = _counted(part, others[:, :, None, :, 0], q_rows.shape[2])
        own, n = _centred(q_rows @ k.transpose(-2, -1) + bias, counted)
        position, _ = _centred(q_rows @ k_others.transpose(-2, -1) + bias_others, counted)
        weight = own * (n >= 2) / n
        sums.append(torch.stack([(weight * position).sum(dim=(0, 2, 3)), (weight * own).sum(dim=(0, 2, 3))]))
    by_position, whole = torch.stack(sums).sum(dim=0)
    return by_position, whole


def _held(k: Tensor, mask: Mask, queries: int) -> Tensor:
    """(B, K): 1 for a key that some query of its sample sees, else 0 (padding)."""
    visible = visible_keys(mask, queries, k.shape[2], k.device)
    if visible is None:
        return k.new_ones(len(k), k.shape[2])
    whole = visible[(None,) * (4 - visible.dim())].expand(len(k), -1, -1, k.shape[2])
    return whole.flatten(1, 2).any(dim=1).to(k.dtype)


def _mean_of_others(x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample the mean of x over the other samples that count, and whether there is any."""
    counted = x * counts
    n = counts.sum(dim=0, keepdim=True) - counts
    return (counted.sum(dim=0, keepdim=True) - counted) / n.clamp_min(1), n > 0


def _biases(mask: Mask, beta: Tensor) -> tuple[Tensor | float, Tensor | float]:
    """bias/β where it hides no key, and with the bias that other samples have there: the same unless it comes from data."""
    if not isinstance(mask, Bias):
        return 0.0, 0.0
    seen = mask.bias > NEVER
    bias = torch.where(seen, mask.bias.to(beta.dtype), 0.0)
    others = bias if len(bias) == 1 else _mean_of_others(bias, seen.to(beta.dtype))[0]
    return bias / beta, others / beta


def _counted(mask: Mask, others: Tensor, queries: int) -> Tensor:
    visible = visible_keys(mask, queries, others.shape[-1], others.device)
    return others if visible is None else visible & others


def _centred(logits: Tensor, counted: Tensor) -> tuple[Tensor, Tensor]:
    """The logits minus their mean over the keys that count, 0 elsewhere; and how many count, at least 1."""
    seen = counted.to(logits.dtype).expand_as(logits)
    n = seen.sum(dim=-1, keepdim=True).clamp_min(1)
    return (logits - (logits * seen).sum(dim=-1, keepdim=True) / n) * seen, n
