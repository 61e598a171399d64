"""Statistics of one attention call, head by head, from q and k: no Q×K matrix for anything in the softmax family."""

from __future__ import annotations

import torch
from torch import Tensor

from eureka.attention.fused import Beta, plain_beta, repeat_heads
from eureka.attention.mask import Bias, Dense, KeyPadding, Mask, visible_counts
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.statistics import attention_entropy, participation, row_spread
from eureka.patching.attach import AttentionCall

NEAR_UNIFORM = 0.98
"""A row is near uniform if its entropy is at least this share of log n."""
NEAR_ONE_HOT = 0.9
"""A row is near one-hot if Σp² is at least this; its largest weight then is, too."""


@torch.no_grad()
def head_statistics(call: AttentionCall, samples: int | None = None) -> dict[str, list[float]]:
    """Means over the rows of each head, over the first `samples` of the batch.

    entropy       of the weights, as a share of log n, n the visible keys of the row; rows that see two keys or more
    participation Σp²
    spread        standard deviation of the row's logits q·k, which NormSoftmax compares with √d
    near_uniform  share of rows with entropy ≥ 0.98 log n
    near_one_hot  share of rows with Σp² ≥ 0.9

    Weights that are no distribution (linear, sigmoid) are taken as |w| / Σ|w|.
    """
    q, k, mask = first_samples(call, samples)
    entropy, squares = _of_softmax(call, q, k, mask) if in_family(call) else _of_weights(call, q, k, mask)
    n = _visible(q, k, mask).to(entropy.dtype)
    several, any_ = n >= 2, n >= 1
    share = entropy / n.clamp_min(2).log()
    return {
        "entropy": head_means(share, several),
        "participation": head_means(squares, any_),
        "spread": head_spread(q, k, mask),
        "near_uniform": head_means((share >= NEAR_UNIFORM).to(share.dtype), several),
        "near_one_hot": head_means((squares >= NEAR_ONE_HOT).to(share.dtype), several),
    }


@torch.no_grad()
def head_spread(q: Tensor, k: Tensor, mask: Mask) -> list[float]:
    """The standard deviation of a row of q·k over its visible keys, head by head: the mean over rows that see two or more."""
    return head_means(row_spread(q, k, mask), _visible(q, k, mask) >= 2)


def _visible(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """How many keys each row sees, (B, H, Q)."""
    n = torch.as_tensor(visible_counts(mask, q.shape[2], k.shape[2], q.device), device=q.device)
    return (n.squeeze(-1) if n.dim() else n).expand(q.shape[:3])


def first_samples(call: AttentionCall, samples: int | None) -> tuple[Tensor, Tensor, Mask]:
    """q, k and the mask of the first samples of the batch."""
    q, k, mask = call.q.detach(), call.k.detach(), call.mask
    if samples is None or len(q) <= samples:
        return q, k, mask
    if isinstance(mask, (KeyPadding, Dense)) and _batched(mask.visible, len(q)):
        mask = type(mask)(mask.visible[:samples])
    elif isinstance(mask, Bias) and _batched(mask.bias, len(q)):
        mask = Bias(mask.bias[:samples])
    return q[:samples], k[:samples], mask


def _batched(mask: Tensor, batch: int) -> bool:
    return mask.dim() in (2, 4) and mask.shape[0] == batch and not (mask.dim() == 2 and mask.dtype != torch.bool)


def in_family(call: AttentionCall) -> bool:
    return call.operator is None or isinstance(call.operator, SoftmaxFamily)


def logit_factors(call: AttentionCall, q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Beta]:
    """q, k and β whose product the softmax of a call gets; those of plain softmax where it has none."""
    if isinstance(call.operator, SoftmaxFamily):
        q, k = call.operator.prepare(q, k)
        return q, k, call.operator.beta(q, k, mask)
    return q, k, plain_beta(q)


def _of_softmax(call: AttentionCall, q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """Entropy and Σp² of softmax(β·q·k), (B, H, Q) each."""
    q, k, beta = logit_factors(call, q, k, mask)
    return attention_entropy(q, k, beta, mask), participation(q, k, beta, mask)


def _of_weights(call: AttentionCall, q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """Entropy and Σp² of explicit weights, (B, H, Q) each."""
    assert call.operator is not None
    w = call.operator.weights(q, repeat_heads(k, q.shape[1]), mask).abs()
    p = w / w.sum(dim=-1, keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)
    return -torch.xlogy(p, p).sum(dim=-1), p.square().sum(dim=-1)


def head_means(values: Tensor, counted: Tensor) -> list[float]:
    """(B, H, Q) → the mean of each head over the rows that count; NaN if none does."""
    total = torch.where(counted, values, 0.0).sum(dim=(0, 2))
    means: list[float] = (total / counted.sum(dim=(0, 2))).tolist()
    return means
