"""QR attention: the squares of an orthonormal factor, doubly stochastic without iterating."""

from __future__ import annotations

import torch
from torch import Tensor

from eureka.attention.checks import checked
from eureka.attention.explicit import full_precision, logits_of, shown
from eureka.attention.fused import plain_beta
from eureka.attention.mask import Mask
from eureka.attention.operator import ExplicitOperator

RIDGE = 1e-6
"""Added to the Gram matrix, as a share of its mean diagonal: what counts as a new direction."""


class QR(ExplicitOperator):
    """U⊙U, with U the orthonormal rows that Gram and Schmidt make of the logits a = q·k / √d, in the order of the queries.

    a = L·U with L lower triangular (the QR factorisation of aᵀ), from the Cholesky factor of a·aᵀ + λ·I in double precision.

    Rank-deficient logits are the rule, not the exception: a has rank D at most, so with more than D queries some rows add no new
    direction. The ridge λ (a millionth of the mean squared row) makes such a row's U small instead of arbitrary, and what its
    squares lack to 1 is spread evenly over its visible keys. So rows always sum to 1, values and gradients are finite and
    continuous, and logits of full rank give the plain factor up to λ, whose columns sum to 1 too when it is square.

    Hidden logits are 0 before the factorisation and hidden weights 0 after it. Under a causal mask U is lower triangular and
    orthonormal, hence diagonal: every token that adds a direction looks at itself.

    It is not causal, and refused in a model that may not see what comes next: what a token attends to depends on later ones.
    """

    rows_depend_on_each_other = True

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        mask = checked(q, k, None, mask)
        with full_precision(q):
            logits = logits_of(q * plain_beta(q), k)
            rest = shown(logits, mask, lowest=0.0)
            if rest is not None:
                logits = logits * rest.seen + rest.added
            squares = orthonormal_rows(logits.double()).square().to(logits.dtype)
            if rest is None:
                return squares + (1 - squares.sum(dim=-1, keepdim=True)) / k.shape[2]
            squares = squares * rest.seen
            return squares + (1 - squares.sum(dim=-1, keepdim=True)) * rest.seen / rest.keys


def orthonormal_rows(a: Tensor) -> Tensor:
    """U with L·U = a, L lower triangular; rows that depend on earlier ones shrink to 0.

    >>> orthonormal_rows(torch.tensor([[3.0, 0.0], [1.0, 2.0], [1.0, 1.0]]).double()).square().round(decimals=4).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    gram = a @ a.transpose(-2, -1)
    size = gram.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[..., None, None]
    ridge = RIDGE * size + torch.finfo(torch.float32).tiny  # all logits 0: still a factor
    factor = torch.linalg.cholesky(gram + ridge * torch.eye(a.shape[-2], dtype=a.dtype, device=a.device))
    rows: Tensor = torch.linalg.solve_triangular(factor, a, upper=False)
    return rows
