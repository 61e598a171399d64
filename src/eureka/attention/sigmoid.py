"""Sigmoid attention: every weight on its own."""

from __future__ import annotations

import torch
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import add_bias, full_precision, logits_of, visible_in
from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask, visible_counts
from eureka.attention.operator import ExplicitOperator


class Sigmoid(ExplicitOperator):
    """σ(q·k / √d - log n), n the number of keys the row sees: near 1/n each when the logits are near 0."""

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            logits = logits_of(q * plain_beta(q), k)
            n = torch.as_tensor(visible_counts(mask, q.shape[2], k.shape[2], q.device)).clamp_min(1)
            weights = (add_bias(logits, mask) - n.to(logits).log()).sigmoid()
            visible = visible_in(logits, mask)
            return weights if visible is None else weights.masked_fill(~visible, 0.0)
