"""A control: W_Q and W_K learn at a multiple of the learning rate, everything else as before.

AdamW's step is proportional to the learning rate, weight decay included, so the multiple can be taken of the finished step;
that also reaches the part of a fused qkv weight that no parameter group can.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from eureka.errors import RequestError
from eureka.probes.projections import Projection, find_projections


class QueryKeyRate:
    """Use it around the optimiser's step."""

    def __init__(self, model: nn.Module, scale: float) -> None:
        self.factors: dict[nn.Parameter, Tensor] = {}
        if scale == 1.0:
            return
        for site in find_projections(model):
            for letter in "qk":
                if letter in site:
                    self._slow_down(site[letter], scale)
        if not self.factors:
            raise RequestError(
                f"training.qk_lr_scale {scale:g}: this model has no W_Q and W_K that could be found; leave it at 1."
            )

    def _slow_down(self, projection: Projection, scale: float) -> None:
        parameter = projection.parameter
        factor = self.factors.setdefault(parameter, torch.ones_like(parameter))
        places = torch.arange(parameter.numel(), device=parameter.device).view_as(parameter)
        factor.view(-1)[projection.rows(places).flatten()] = scale

    @contextlib.contextmanager
    def around_step(self) -> Iterator[None]:
        """p ← before + factor · (after - before)."""
        before = [parameter.detach().clone() for parameter in self.factors]
        yield
        with torch.no_grad():
            for (parameter, factor), old in zip(self.factors.items(), before, strict=True):
                parameter.copy_(torch.lerp(old, parameter, factor))
