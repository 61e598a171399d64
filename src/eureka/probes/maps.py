"""The weights of attention on one sample, as a picture shows them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from eureka.probes.watching import as_is, operator_of, run_model, sites_of, watching

LARGEST = 100
"""Tokens; the weights of more are neither kept nor drawn."""


@torch.no_grad()
def attention_maps(model: nn.Module, inputs: Any) -> Tensor | None:
    """(layers, heads, queries, keys): whom each query of the first sample looks at, in eval mode and with nothing left changed.

    None where there are more than 100 tokens, or where layers differ in tokens or heads, so that they are not one array.

    >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> attention_maps(layer, torch.randn(1, 5, 8)).sum(dim=-1).shape
    torch.Size([1, 2, 5])
    """
    sites = sites_of(model, None)
    with as_is(model), watching(model, sites) as kept:
        run_model(model, inputs)
    calls = [found[0] for found in kept.values() if found]
    shapes = {(seen.q.shape[1], seen.q.shape[2], seen.k.shape[2]) for seen in calls}
    if len(shapes) != 1 or max(next(iter(shapes))[1:]) > LARGEST:
        return None
    return torch.stack([operator_of(seen).weights(seen.q[:1], seen.k[:1], seen.mask)[0] for seen in calls])
