"""The variance of each row of q·k over its visible keys, without the Q×K matrix.

    var_i = mean_j (q_i·k_j - mean_j q_i·k_j)² = q_iᵀ C_i q_i,   C_i the covariance of the keys that row i sees

The keys are centred before anything is squared: E[a²] - E[a]² would cancel. Gradients are in closed form, once differentiable.
"""

from __future__ import annotations

from torch import Tensor

from eureka.attention.explicit import full_precision, wide
from eureka.attention.mask import Causal, KeyPadding, Mask, NoMask, visible_keys
from eureka.attention.rowwise import call
from eureka.attention.variance_blocks import BlockVariance
from eureka.attention.variance_causal import CausalVariance
from eureka.attention.variance_pooled import PooledVariance


def row_variance(q: Tensor, k: Tensor, mask: Mask) -> Tensor:
    """(B, H, Q, 1), in at least single precision; 0 for a row that sees one key or none.

    No mask and key padding share one covariance per head; causal rows have prefix covariances; any other pattern goes through
    the logits in blocks of rows. A bias counts only by what it hides.
    """
    with full_precision(q):
        q, k = wide(q), wide(k)
        (b, h, queries, d), (hk, keys) = q.shape, k.shape[1:3]
        if isinstance(mask, Causal):
            rows = q.reshape(b, hk, h // hk, queries, d)
            return call(CausalVariance, rows, k, mask.offset).reshape(b, h, queries, 1)
        if isinstance(mask, (NoMask, KeyPadding)):
            rows = q.reshape(b, hk, h // hk * queries, d)
            visible = mask.visible[:, None, :, None] if isinstance(mask, KeyPadding) else None
            return call(PooledVariance, rows, k, visible).reshape(b, h, queries, 1)
        return call(BlockVariance, q, k, visible_keys(mask, queries, keys, q.device))
