"""Sinkhorn attention: rows and columns normalised in turn, towards a doubly stochastic matrix."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, shown
from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask
from eureka.attention.operator import ExplicitOperator
from eureka.errors import RequestError


class Sinkhorn(ExplicitOperator):
    """Softmax over the keys, then `iterations` times: each column to one total, each row to 1. With 0 it is plain softmax.

    Hidden keys stay at 0 throughout, in the rows and in the columns; an unseen column stays empty. Ends on the rows, which
    therefore sum to 1; the columns then do so only in the limit, and to (visible rows) / (visible columns) each. A causal mask
    has one doubly stochastic matrix, the identity, so there many iterations end in every token looking at itself.

    It is not causal, and refused in a model that may not see what comes next: what a token attends to depends on later ones.
    """

    rows_depend_on_each_other = True

    def __init__(self, *, iterations: Annotated[int, Field(ge=0, le=10_000)] = 3) -> None:
        super().__init__()
        if iterations < 0:
            raise RequestError(f"iterations must be 0 or more, not {iterations}.")
        self.iterations = iterations

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            logits = logits_of(q * plain_beta(q), k)
            rest = shown(logits, mask, lowest=-math.inf)
            logits = logits if rest is None else logits + rest.added
            logs = logits - log_total(logits, -1)
            for _ in range(self.iterations):
                logs = logs - log_total(logs, -2)
                logs = logs - log_total(logs, -1)
            return logs.exp()


def log_total(logs: Tensor, dim: int) -> Tensor:
    """log Σ exp along one dimension, kept; 0 where there is nothing to sum, with gradients that stay finite.

    >>> import torch
    >>> log_total(torch.tensor([[0.0, 0.0], [-math.inf, -math.inf]]), -1).exp().flatten().tolist()
    [2.0, 1.0]
    """
    top = logs.detach().amax(dim=dim, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0.0)
    total = (logs - top).exp().sum(dim=dim, keepdim=True)
    return total.masked_fill(total == 0, 1.0).log() + top
