"""Do W_Q and W_K make q and k, and nothing else? Asked before they are rescaled.

The module with the projections is run with its attention weights frozen: whatever q and k are, the weights are those of the first
run. Then W_Q and W_K, doubled, must leave what comes out alone; else they make values, a gate or a residual too. And the rows of
some heads, doubled, must leave the other heads alone; else heads lie in another order than they seem to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from eureka.attention.explicit import mix
from eureka.attention.extras import Extras
from eureka.attention.mask import Mask
from eureka.attention.softmax import Softmax
from eureka.patching.attach import AttentionCall, Site, attached
from eureka.probes.capture import copied, run_alike
from eureka.probes.projections import Heads, Projection

CLOSE = 1e-3
"""How near two numbers are that count as the same, as a share of the largest."""
Projections = Mapping[str, Projection]


class Frozen(Softmax):
    """Plain softmax until `replay` is called; from then on its calls give the weights of the first calls again."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []
        self._next: int | None = None

    def replay(self) -> None:
        """Begin again with the first weights."""
        self._next = 0

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        return self._frozen(super().weights(q, k, mask))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        return mix(self.weights(q, k, mask), v, dropout)

    def with_extras(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, dropout: float, extras: Extras
    ) -> tuple[Tensor, Tensor]:
        weights = self._frozen(super().with_extras(q, k, v, mask, dropout, extras)[1])
        return mix(weights, v, dropout), weights

    def _frozen(self, weights: Tensor) -> Tensor:
        if self._next is None:
            self._kept.append(weights)
            return weights
        self._next += 1
        return self._kept[self._next - 1]


def why_not_sole(
    model: nn.Module, inputs: Any, sites: Sequence[Site], heads: Mapping[int, Heads], found: Mapping[int, Projections]
) -> dict[int, str]:
    """Why W_Q or W_K of a site must be left alone, by its index, after one pass; one that cannot run again is not asked."""
    reasons: dict[int, str] = {}
    asked: set[int] = set()

    def ask(site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if site.index in asked:
            return
        asked.add(site.index)
        try:
            why = _why(_Alone(model, site, heads[site.index], args, kwargs), found[site.index])
        except Exception:  # it cannot be run again, or its weights cannot be replaced
            return
        if why is not None:
            reasons[site.index] = why

    with _asking(sites, ask):
        run_alike(model, inputs)
    return reasons


@contextmanager
def _asking(sites: Sequence[Site], ask: Any) -> Iterator[None]:
    def before(site: Site) -> Any:
        return lambda _, args, kwargs: ask(site, args, kwargs)

    hooks = [site.owner.register_forward_pre_hook(before(site), with_kwargs=True) for site in sites]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Alone:
    """The module of a site, run on one and the same inputs with frozen weights."""

    def __init__(self, model: nn.Module, site: Site, heads: Heads, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._model, self._site, self.heads, self._given = model, site, heads, copied((args, kwargs))
        self._frozen = Frozen()
        self.once = self.run()

    def run(self) -> tuple[Tensor, dict[str, Tensor]]:
        """All numbers that come out, and q and k of the first call, a row for each head."""
        calls: list[AttentionCall] = []
        args, kwargs = copied(self._given)
        with attached(self._model, [self._site], operators=[self._frozen], observer=lambda _, call: calls.append(call)):
            out = self._site.owner(*args, **kwargs)
        self._frozen.replay()
        numbers = [leaf.flatten() for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        q, k = calls[0].q, calls[0].k
        parts = {"q": q, "k": k[:, :: k.shape[1] // self.heads.groups]}
        return torch.cat([part.float() for part in numbers]), {
            letter: part.transpose(0, 1).flatten(1) for letter, part in parts.items()
        }


def _why(alone: _Alone, found: Projections) -> str | None:
    if not alone.once[0].isfinite().all():
        return None
    for letter, projection in found.items():
        count = alone.heads.queries if letter == "q" else alone.heads.groups
        with doubled(projection, torch.ones(count, dtype=torch.bool)):
            out, _ = alone.run()
        if not _same(alone.once[0][None], out[None]).all():
            return (
                f"has a W_{letter.upper()} that makes more than {letter} (values, a gate or a residual), or q, k and v lie in"
                " another order"
            )
        for place in range((count - 1).bit_length()):
            chosen = (torch.arange(count) >> place) % 2 == 1
            with doubled(projection, chosen):
                _, now = alone.run()
            if not (chosen | _same(alone.once[1][letter], now[letter]).cpu()).all():
                return "has heads whose rows could not be told apart"
    return None


def _same(once: Tensor, now: Tensor) -> Tensor:
    """For each row, whether it is what it was."""
    once, now = once.float().flatten(1), now.float().flatten(1)
    return (now - once).abs().amax(dim=1) <= CLOSE * once.abs().amax(dim=1)


@contextmanager
def doubled(projection: Projection, heads: Tensor) -> Iterator[None]:
    """While inside, the rows of some heads are doubled, in weight and bias; afterwards every bit is as it was."""
    parts = [(projection.parameter, projection.rows)]
    parts += [(projection.bias, projection.bias_rows)] if projection.bias is not None else []
    masks = []
    for parameter, rows in parts:
        places = rows(torch.arange(parameter.numel(), device=parameter.device).view(parameter.shape))
        chosen = torch.zeros(parameter.numel(), dtype=torch.bool, device=parameter.device)
        chosen[places.reshape(len(heads), -1)[heads.to(parameter.device)].flatten()] = True
        masks.append((parameter, chosen.view(parameter.shape)))
    with elements_doubled(masks):
        yield


@contextmanager
def elements_doubled(parts: Sequence[tuple[nn.Parameter, Tensor]]) -> Iterator[None]:
    """While inside, some elements of some parameters are doubled."""
    copies = [parameter.detach().clone() for parameter, _ in parts]
    try:
        for parameter, chosen in parts:
            parameter.mul_(chosen.to(parameter.dtype) + 1)
        torch.clear_autocast_cache()
        yield
    finally:
        for (parameter, _), copy in zip(parts, copies, strict=True):
            parameter.copy_(copy)
        torch.clear_autocast_cache()
