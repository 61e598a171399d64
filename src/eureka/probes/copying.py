"""The copying score of a head: does what it writes raise the logit of the token that it looks at?

After Elhage et al. (2021, "A Mathematical Framework for Transformer Circuits"): the full OV circuit of a head, W_U W_O W_V W_E,
says by how much each token raises the logit of each when the head looks at it. With λ its eigenvalues,

    copying = Σ λ / Σ |λ|,   in [-1, 1]

1 if every eigenvalue is positive (tokens, or groups of tokens, raise themselves), about 0 for random weights, -1 if tokens lower
themselves. It is the direct path from the embedding through this head alone to the logits: norms, biases and what other layers do
to a token are left out. The eigenvalues that are not 0 are those of W_V (W_E W_U) W_O, which has one row for each dimension of
the head, so that no matrix of vocabulary × vocabulary is made.

It is not measured where the model does not say what its embeddings are (``get_input_embeddings`` and ``get_output_embeddings``,
as in transformers; a model whose token t has row t + s of its embedding says s as ``token_shift``), or where W_V or W_O of a site
is not found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from eureka.patching.attach import Site
from eureka.probes.projections import Projection, output_projection, projections


class Copying:
    """Scores the heads of some sites of one model, with the weights that it has when it is asked."""

    def __init__(self, model: nn.Module, sites: Sequence[Site]) -> None:
        self.model = model
        found = {site.index: (projections(site).get("v"), output_projection(model, site)) for site in sites}
        self._weights = {index: (value, out) for index, (value, out) in found.items() if value is not None and out is not None}
        self._tokens: Tensor | None = None

    def begin(self) -> None:
        """Read the embeddings anew: the model has made a step."""
        self._tokens = None

    @torch.no_grad()
    def scores(self, site: Site, heads: int, value_heads: int) -> dict[str, list[float]]:
        """By name, the score of each head of a site; nothing where it cannot be measured."""
        if site.index not in self._weights:
            return {}
        if self._tokens is None:
            self._tokens = embedding_product(self.model)
        value, out = (_matrix(part) for part in self._weights[site.index])
        if self._tokens is None or not _fit(value, out, self._tokens, heads, value_heads):
            return {}
        values = [part for part in value.chunk(value_heads) for _ in range(heads // value_heads)]  # a group shares its values
        outs = out.chunk(heads, dim=1)
        return {"copying": [positivity(v @ self._tokens @ o) for v, o in zip(values, outs, strict=True)]}


def embedding_product(model: nn.Module) -> Tensor | None:
    """W_E W_U, (width, width): what is read as a token by what is written as one; None where the model has no such pair."""
    read, written = _embedding(model, "get_input_embeddings"), _embedding(model, "get_output_embeddings")
    if read is None or written is None:
        return None
    read = read[int(getattr(model, "token_shift", 0)) :]
    both = min(len(read), len(written))
    return (read[:both].T @ written[:both]).double().cpu()


def _embedding(model: Any, method: str) -> Tensor | None:
    """The weight of an embedding, a row for each token."""
    try:
        weight = getattr(model, method)().weight
    except (AttributeError, NotImplementedError):
        return None
    return weight.detach().float() if isinstance(weight, Tensor) and weight.dim() == 2 else None


def _matrix(projection: Projection) -> Tensor:
    return projection.rows(projection.parameter.detach()).double().cpu()


def _fit(value: Tensor, out: Tensor, tokens: Tensor, heads: int, value_heads: int) -> bool:
    """Whether W_V reads what the embedding writes, W_O writes what the logits are read from, and both are as wide as a head."""
    same = value.shape[1] == tokens.shape[0] and out.shape[0] == tokens.shape[1]
    whole = heads % value_heads == 0 and value.shape[0] % value_heads == 0 and out.shape[1] % heads == 0
    return same and whole and value.shape[0] // value_heads == out.shape[1] // heads


def positivity(matrix: Tensor) -> float:
    """Σ λ / Σ |λ| over the eigenvalues of a square matrix; NaN if all are 0, or if it is not finite.

    >>> positivity(torch.eye(3)), positivity(-torch.eye(3)), positivity(torch.diag(torch.tensor([3.0, -1.0])))
    (1.0, -1.0, 0.5)
    """
    if not matrix.isfinite().all():
        return math.nan
    eigenvalues = torch.linalg.eigvals(matrix)
    size = eigenvalues.abs().sum().item()
    return eigenvalues.real.sum().item() / size if size > 0 else math.nan
