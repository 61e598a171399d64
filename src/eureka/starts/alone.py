"""Run the module of a site by itself, again and again, on what it gets in a pass of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from eureka.attention.operator import Operator
from eureka.patching.attach import AttentionCall, Site, attached
from eureka.probes.capture import copied, run_alike, same_random_state
from eureka.probes.projections import Projection


class Alone(NamedTuple):
    """The module that holds the projections of a site, and its inputs in the first call of a pass."""

    model: nn.Module
    site: Site
    inputs: tuple[tuple[Any, ...], dict[str, Any]]

    def run(self, operator: Operator | None = None) -> tuple[Any, AttentionCall]:
        """What comes out now, and the first attention call; an error if the module needs more than its inputs."""
        calls: list[AttentionCall] = []
        operators = None if operator is None else [operator]
        watched = attached(self.model, [self.site], operators=operators, observer=lambda _, call: calls.append(call))
        args, kwargs = copied(self.inputs)
        with watched, same_random_state(self.site.owner):
            out = self.site.owner(*args, **kwargs)
        return out, calls[0]


def alone(model: nn.Module, inputs: Any, sites: Sequence[Site]) -> dict[int, Alone]:
    """Each site that is called in a pass of the model, by its index."""
    found: dict[int, Alone] = {}

    def before(site: Site) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if site.index not in found:
                found[site.index] = Alone(model, site, copied((args, kwargs)))

        return keep

    hooks = [site.owner.register_forward_pre_hook(before(site), with_kwargs=True) for site in sites]
    try:
        run_alike(model, inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def is_key(x: Tensor, k: Tensor) -> bool:
    """Whether x is k of a call, as models hand it out for a cache: before it is repeated for heads that share it, or turned."""
    views = [x, x.transpose(1, 2)] if x.dim() == 4 else [x[:, None]] if x.dim() == 3 else []
    fitting = [view for view in views if view.numel() and k.shape[1] % view.shape[1] == 0]
    return any(torch.equal(view, k[:, :: k.shape[1] // view.shape[1]]) for view in fitting)


@contextmanager
def multiplied(projection: Projection, heads: Tensor, factor: float = 2.0) -> Iterator[None]:
    """While inside, the rows of some heads are multiplied, in weight and bias; afterwards every bit is as it was."""
    masks = []
    for parameter, places in projection.places():
        chosen = torch.zeros(parameter.numel(), dtype=torch.bool, device=parameter.device)
        chosen[places.reshape(len(heads), -1)[heads.to(parameter.device)].flatten()] = True
        masks.append((parameter, chosen.view(parameter.shape)))
    with elements_multiplied(masks, factor):
        yield


@contextmanager
def elements_multiplied(parts: Sequence[tuple[nn.Parameter, Tensor]], factor: float = 2.0) -> Iterator[None]:
    """While inside, some elements of some parameters are multiplied."""
    copies = [parameter.detach().clone() for parameter, _ in parts]
    try:
        for parameter, chosen in parts:
            parameter.mul_(chosen.to(parameter.dtype) * (factor - 1) + 1)
        torch.clear_autocast_cache()
        yield
    finally:
        for (parameter, _), copy in zip(parts, copies, strict=True):
            parameter.copy_(copy)
        torch.clear_autocast_cache()
