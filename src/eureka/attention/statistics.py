"""How attention is spread, without the Q×K matrix: what probes need.

With LSE_i = log Σ_j exp(β·q_i·k_j) and p the weights, the entropy of a row is

    H = -Σ p log p = LSE - β·q·(Σ_j p_j k_j)

which is one fused call with the keys as values: PyTorch's fused CPU kernel hands out the LSE. Where it cannot be used (a bias,
another device, half precision), or where logits so large that the two terms would cancel are met, it comes from the logits
in blocks of rows, in O(Q + K) memory too.

The participation Σ p² = exp(LSE(2β) - 2·LSE(β)) is two such calls. Blocks of rows need the product q·k once and no values, which
takes half of the time while a block has enough rows for the keys to be worth reading. None of these is differentiable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, shown, wide
from eureka.attention.fused import Beta, repeat_heads
from eureka.attention.mask import Bias, Causal, Mask, NoMask, rows_of, visible_counts, visible_keys
from eureka.attention.rowwise import dot, norm
from eureka.attention.variance import row_blocks, row_variance, rows_in_block

FEW, FEW_CAUSAL = 4, 16
"""Rows in a block up to which two fused calls are the faster way to the participation; a causal call skips half of its work.
Measured, fused ÷ blocks: 2.5, 2.1, 1.4 to 1.6, 0.75 for blocks of 32, 16, 8 and 4 rows, causal 1.0, 0.8, 0.55 to 0.75, 0.6."""
Cells = Callable[[slice], Tensor]
"""Chosen keys of some rows: from a slice of the rows to a boolean, broadcastable to (B, H, rows, K)."""
LARGEST = 200.0
"""Of the LSE of centred keys: beyond it single precision would lose more than 1e-4 nats in LSE(β) - β·q·E[k]."""


@torch.no_grad()
def attention_entropy(q: Tensor, k: Tensor, beta: Beta, mask: Mask | Tensor | None = None) -> Tensor:
    """The entropy of each row in nats, (B, H, Q); 0 for a row that sees no key.

    >>> q, k = torch.zeros(1, 1, 1, 4), torch.randn(1, 1, 8, 4)
    >>> round(attention_entropy(q, k, 0.5).exp().item(), 4)
    8.0
    """
    mask = checked(q, k, None, mask)
    q, k = _scaled(q, k, beta)
    if _has_kernel(q, mask):
        means, lse = _kernel(q, k, mask)
        if lse.abs().max() < LARGEST:
            return (lse - dot(q, means).squeeze(-1)).clamp_min(0.0)
    return _by_blocks(q, k, mask, _entropy)


@torch.no_grad()
def participation(q: Tensor, k: Tensor, beta: Beta, mask: Mask | Tensor | None = None) -> Tensor:
    """Σ p² of each row, (B, H, Q): 1 when it looks at one key, 1/n when at n alike; 0 for a row that sees no key.

    >>> q, k = torch.zeros(1, 1, 1, 4), torch.randn(1, 1, 8, 4)
    >>> round(participation(q, k, 0.5).item(), 4)
    0.125
    """
    mask = checked(q, k, None, mask)
    q, k = _scaled(q, k, beta)
    if _has_kernel(q, mask) and rows_in_block(q, k.shape[2]) <= (FEW_CAUSAL if _skips_half(mask) else FEW):
        lse = _kernel(q, k, mask)[1]
        if lse.abs().max() < LARGEST:
            return (_kernel(2 * q, k, mask)[1] - 2 * lse).exp() * _sees_any(q, k, mask)
    return _by_blocks(q, k, mask, _squares)


@torch.no_grad()
def attention_shares(
    q: Tensor, k: Tensor, beta: Beta, regions: Sequence[Cells], mask: Mask | Tensor | None = None
) -> list[Tensor]:
    """The share of each row's attention that its chosen keys get, (B, H, Q) for each region; 0 for a row that sees no key.

    >>> q, k = torch.zeros(1, 1, 4, 2), torch.randn(1, 1, 4, 2)
    >>> first = lambda rows: torch.tensor([True, False, False, False])
    >>> attention_shares(q, k, 1.0, [first], Causal())[0].flatten().tolist()
    [1.0, 0.5, 0.3333333432674408, 0.25]
    """
    mask = checked(q, k, None, mask)
    q, k = _scaled(q, k, beta)
    parts = []
    with full_precision(q):
        for rows in row_blocks(q, k.shape[2]):
            weights = _weights(q[:, :, rows] @ k.transpose(-2, -1), rows_of(mask, rows))
            parts.append(torch.stack([(weights * cells(rows)).sum(dim=-1) for cells in regions]))
    return list(torch.cat(parts, dim=-1))


@torch.no_grad()
def row_spread(q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
    """The standard deviation of each row of q·k over its visible keys, (B, H, Q): what NormSoftmax divides by.

    >>> q, k = torch.ones(1, 1, 1, 1), torch.tensor([[[[1.0], [3.0]]]])
    >>> row_spread(q, k).item()
    1.0
    """
    return row_variance(q, k, checked(q, k, None, mask)).sqrt().squeeze(-1)


def _scaled(q: Tensor, k: Tensor, beta: Beta) -> tuple[Tensor, Tensor]:
    """β·q, and the keys made whole and centred: a shift of all keys moves a row's logits together, and its weights not at all."""
    k = repeat_heads(wide(k), q.shape[1])
    return wide(q) * beta, k - k.mean(dim=-2, keepdim=True)


def _has_kernel(q: Tensor, mask: Mask) -> bool:
    return q.device.type == "cpu" and not isinstance(mask, Bias)


def _skips_half(mask: Mask) -> bool:
    return isinstance(mask, Causal) and mask.offset == 0


def _kernel(q: Tensor, k: Tensor, mask: Mask) -> tuple[Tensor, Tensor]:
    """Σ p k (B, H, Q, D) and the LSE (B, H, Q); zeros for a row that sees no key."""
    causal = _skips_half(mask)
    hidden = None
    if not causal and not isinstance(mask, NoMask):
        visible = visible_keys(mask, q.shape[2], k.shape[2], q.device)
        assert visible is not None
        hidden = torch.zeros(visible.shape, dtype=q.dtype).masked_fill(~visible, -math.inf)
        hidden = hidden.reshape((1,) * (4 - hidden.dim()) + tuple(hidden.shape))
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    means, lse = kernel(q, k, k, 0.0, causal, attn_mask=hidden, scale=1.0)
    return means, lse


def _by_blocks(q: Tensor, k: Tensor, mask: Mask, summary: Callable[[Tensor, Mask], Tensor]) -> Tensor:
    """A number for each row from its logits, a block of rows at a time."""
    with full_precision(q):
        parts = [summary(q[:, :, rows] @ k.transpose(-2, -1), rows_of(mask, rows)) for rows in row_blocks(q, k.shape[2])]
    return torch.cat(parts, dim=2)


def _entropy(logits: Tensor, mask: Mask) -> Tensor:
    weights = _weights(logits, mask)
    return -torch.xlogy(weights, weights).sum(dim=-1)


def _squares(logits: Tensor, mask: Mask) -> Tensor:
    return norm(_weights(logits, mask)).square().squeeze(-1)


def _weights(logits: Tensor, mask: Mask) -> Tensor:
    """p, and zeros for a row that sees nothing; a key that is hidden has less than any bias can say."""
    rest = shown(logits, mask, lowest=-math.inf)
    if rest is None:
        return logits.softmax(dim=-1)
    return torch.nan_to_num((logits + rest.added).softmax(dim=-1), nan=0.0)


def _sees_any(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """1 for a row that sees a key, else 0; broadcastable to (B, H, Q)."""
    counts = torch.as_tensor(visible_counts(mask, q.shape[2], k.shape[2], q.device))
    return (counts > 0).to(q.dtype).squeeze(-1) if counts.dim() else counts > 0
