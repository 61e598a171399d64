"""Sigmoid attention: every weight on its own."""

from __future__ import annotations

import math

from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, shown
from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask
from eureka.attention.operator import ExplicitOperator


class Sigmoid(ExplicitOperator):
    """σ(q·k / √d - log n), n the number of keys the row sees: near 1/n each when the logits are near 0."""

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            logits = logits_of(q * plain_beta(q), k)
            rest = shown(logits, mask)
            if rest is None:
                return logits.sub_(math.log(k.shape[2])).sigmoid_()  # in place: nothing but the result is needed again
            return (logits + (rest.added - rest.keys.log())).sigmoid()
