"""Which rows of a fused projection make q and k, head by head: read from one pass, whatever their order.

The layer's output is kept until the attention is called. If every feature of q is a feature of that output, bit for bit, these
are the rows. Where q is changed on the way (rotary positions, a norm), nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from eureka.patching.attach import AttentionCall, Site
from eureka.probes.projections import Projection, fused_layer, picked

LOOKED_AT = 16
"""Tokens that are compared."""


class FusedRows:
    """The rows of the sites whose q, k and v come from one layer."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._layers = {site.index: layer for site in sites if (layer := fused_layer(site)) is not None}
        self._outputs: dict[int, Any] = {}
        self._rows: dict[tuple[int, str], Tensor | None] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep what the layers give in the pass inside."""
        hooks = [layer.register_forward_hook(partial(self._keep, index)) for index, layer in self._layers.items()]
        try:
            yield
        finally:
            self._outputs.clear()
            for hook in hooks:
                hook.remove()

    def see(self, site: Site, call: AttentionCall, groups: int) -> None:
        """Compare a call with what the layer of its site gave; k has so many heads that differ."""
        output = self._outputs.pop(site.index, None)
        if isinstance(output, Tensor):
            self._rows[site.index, "q"] = rows_of(output, call.q)
            self._rows[site.index, "k"] = rows_of(output, call.k[:, :: call.k.shape[1] // groups])

    def projection(self, site: Site, letter: str) -> Projection | None:
        """W_Q or W_K of a site, in the order of its heads; None if it was not seen."""
        rows = self._rows.get((site.index, letter))
        return None if rows is None else picked(self._layers[site.index], rows)

    def _keep(self, index: int, _: nn.Module, __: Any, output: Any) -> None:
        if (index, "q") not in self._rows:
            self._outputs[index] = output


def rows_of(output: Tensor, heads: Tensor) -> Tensor | None:
    """For each feature of (B, H, N, D) heads, head by head, which of (B, N, outputs) it is; None unless each is just one.

    >>> output = torch.arange(24.0).reshape(1, 2, 12)
    >>> rows_of(output, output.view(1, 2, 2, 3, 2)[:, :, :, 1].transpose(1, 2)).tolist()
    [2, 3, 8, 9]
    """
    if output.dim() != 3 or (len(output), output.shape[1]) != (len(heads), heads.shape[2]) or output.dtype != heads.dtype:
        return None
    made, wanted = output[0, :LOOKED_AT].t(), heads[0, :, :LOOKED_AT].transpose(1, 2).flatten(0, 1)
    kinds, kind = torch.unique(torch.cat([made, wanted]).float(), dim=0, return_inverse=True)
    if len(kinds) != len(made):  # features that are alike, or one that is not the layer's
        return None
    place = torch.empty_like(kind[: len(made)])
    place[kind[: len(made)]] = torch.arange(len(made), device=place.device)
    return place[kind[len(made) :]]
