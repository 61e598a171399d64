"""Does anything but logits change with W_Q and W_K? Asked of the whole model, with even attention.

With β = 0 every key that is seen counts alike, whatever q and k are. Then W_Q and W_K, doubled, must leave the values of every
attention and all that the model gives as they were; else something else uses them: a layer that shares the weight, a block that
gates by the queries. A parameter that is all zero, as W_O is in some models, would hide that: it is filled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from eureka.attention.mask import Mask
from eureka.attention.operator import SoftmaxFamily
from eureka.errors import EurekaError
from eureka.patching.attach import AttentionCall, Site, attached
from eureka.probes.capture import run_alike
from eureka.probes.projections import Projection
from eureka.starts.alone import is_key, multiplied

CLOSE = 1e-5
"""How near numbers are that count as the same, as a share of the largest; those of less precision within their rounding. (Where
a mask is read off logits that are written out, it carries the rounding of q·k.)"""
CACHES = ("past_key_values", "cache_params", "mems")
"""What models of Hugging Face hand out beside their answer: keys, for a next call."""
Side = tuple[int, str]
"""W_Q or W_K of a site: its index, and "q" or "k"."""


class Uses(NamedTuple):
    """What a model does with W_Q and W_K beside attending."""

    elsewhere: list[Side]
    """Weights that something else uses too."""
    handed_out: set[int]
    """Sites whose keys are among what the model gives, by their index."""


class Even(SoftmaxFamily):
    """Attends to all keys alike."""

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> float:
        return 0.0


def other_uses(model: nn.Module, inputs: Any, sites: Sequence[Site], sides: Mapping[Side, Projection]) -> Uses:
    """What these weights do besides; nothing is said if the model does not run with even attention, or not alike twice."""
    handed_out = set[int]()

    def comes_out() -> list[Tensor]:
        values, keys = list[Tensor](), list[tuple[int, Tensor]]()

        def see(site: Site, call: AttentionCall) -> None:
            keys.append((site.index, call.k))
            if call.v is not None:
                values.append(call.v.clone())

        with attached(model, sites, operators=[Even() for _ in sites], observer=see):
            out = run_alike(model, inputs)
        given = {key: part for key, part in out.items() if key not in CACHES} if isinstance(out, Mapping) else out
        for leaf in tree_leaves(given):
            if isinstance(leaf, Tensor) and leaf.is_floating_point():
                owners = {index for index, k in keys if is_key(leaf, k)}
                handed_out.update(owners)
                values += [] if owners else [leaf]
        return values

    def changes(some: Sequence[Side]) -> bool:
        with ExitStack() as stack:
            for side in some:
                stack.enter_context(multiplied(sides[side], torch.ones(1, dtype=torch.bool)))
            return not _alike(once, comes_out())

    with _zeros_filled(model):
        try:
            once = comes_out()
            return Uses(list(_guilty(list(sides), changes)) if _alike(once, comes_out()) else [], handed_out)
        except EurekaError:  # some attention cannot be replaced
            return Uses([], set())


def _guilty(some: Sequence[Side], changes: Callable[[Sequence[Side]], bool]) -> Iterator[Side]:
    """Those that change something, by halves: where none does, one question tells."""
    if not some or not changes(some):
        return
    if len(some) == 1:
        yield some[0]
        return
    for half in (some[: len(some) // 2], some[len(some) // 2 :]):
        yield from _guilty(half, changes)


def _alike(once: Sequence[Tensor], now: Sequence[Tensor]) -> bool:
    return len(once) == len(now) and all(_same(a, b) for a, b in zip(once, now, strict=True))


def _same(once: Tensor, now: Tensor) -> bool:
    if once.shape != now.shape:
        return False
    if not once.numel():
        return True
    close = max(CLOSE, 4 * torch.finfo(once.dtype).eps)
    return bool((now.float() - once.float()).abs().max() <= close * once.float().abs().max())


@contextmanager
def _zeros_filled(model: nn.Module) -> Iterator[None]:
    """Inside, parameters that are all zero are not; afterwards they are again, with the same bits."""
    generator = torch.Generator().manual_seed(0)
    zero = [parameter for parameter in model.parameters() if parameter.is_floating_point() and not parameter.any()]
    copies = [parameter.detach().clone() for parameter in zero]
    try:
        for parameter in zero:
            parameter.copy_(0.1 * torch.randn(parameter.shape, generator=generator))
        torch.clear_autocast_cache()
        yield
    finally:
        for parameter, copy in zip(zero, copies, strict=True):
            parameter.copy_(copy)
        torch.clear_autocast_cache()
