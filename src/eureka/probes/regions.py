"""The share of attention, and the gradient, that reaches some of the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from eureka.errors import RequestError
from eureka.patching.attach import AttentionCall, Layers, Site
from eureka.probes.capture import capture, eval_mode, operator_of, run_model, sites_of

Region = Sequence[int] | Tensor
"""Keys, by index; or cells, a boolean (Q, K) or (B, Q, K): the keys that each query should look at."""


@dataclass
class RegionRecord:
    """The attention and the gradient that reach each region at one site."""

    index: int
    name: str
    attention: dict[str, list[float]] = field(default_factory=dict)
    """By region: the share of attention of each head, a mean over samples and queries."""
    gradient: dict[str, float] = field(default_factory=dict)
    """By region of keys: mean |gradient of the loss| in the tokens that enter the site."""


def attention_to(
    model: nn.Module,
    regions: Mapping[str, Region],
    inputs: Any,
    *,
    queries: Sequence[int] | None = None,
    loss: Callable[[Any], Tensor] | None = None,
    layers: Layers | None = None,
) -> list[RegionRecord]:
    """The share of attention that reaches each region, and with `loss` the gradient that reaches its tokens.

    A region of cells gives the attention progress measure of Gopalani & Hu (2025), Σ_Ω |A| / Σ |A|, with Ω the cells that a
    model which has solved the task attends to.

    Args:
        regions: by name: indices of keys, or cells
        inputs: one batch, as the model takes it (a mapping is passed by keyword)
        queries: the queries whose attention counts, all by default; [0] is a class token
        loss: a function from the output of the model to a number, whose gradient is taken

    >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> found = attention_to(layer, {"first": [0], "rest": [1, 2, 3]}, torch.randn(5, 4, 8))[0].attention
    >>> [round(a + b, 5) for a, b in zip(found["first"], found["rest"])]
    [1.0, 1.0]
    """
    if not regions:
        raise RequestError("name at least one region, as in {'indicators': [0, 1]}.")
    sites = sites_of(model, layers)
    wanted = loss is not None
    with (
        eval_mode(model),
        capture(model, sites) as captured,
        torch.set_grad_enabled(wanted),
        _entering(sites if wanted else []) as entering,
    ):
        output = run_model(model, inputs)
    calls = {index: found[0] for index, found in captured.items() if found}
    records = [
        RegionRecord(site.index, site.name, _shares(calls[site.index], regions, queries)) for site in sites if site.index in calls
    ]
    if loss is not None:
        _add_gradients(records, loss(output), entering, regions, {index: call.k.shape[2] for index, call in calls.items()})
    return records


@torch.no_grad()
def _shares(call: AttentionCall, regions: Mapping[str, Region], queries: Sequence[int] | None) -> dict[str, list[float]]:
    rows = slice(None) if queries is None else list(queries)
    keys = call.k.shape[2]
    by_key = {name: _indices(name, region, keys) for name, region in regions.items() if not _is_cells(region)}
    found = {name: _to_keys(call, indices, rows) for name, indices in by_key.items()}
    cells = {name: region for name, region in regions.items() if _is_cells(region)}
    if cells:
        weights = operator_of(call).weights(call.q, call.k, call.mask).abs()[:, :, rows]
        found |= {name: _to_cells(weights, region, rows) for name, region in cells.items() if isinstance(region, Tensor)}
    return {name: found[name] for name in regions}


def _to_keys(call: AttentionCall, indices: list[int], rows: Any) -> list[float]:
    """Attend with a value of 1 at the keys of the region, so that no Q×K matrix is made."""
    v = torch.zeros(*call.k.shape[:3], 1, dtype=call.q.dtype, device=call.q.device)
    v[:, :, indices] = 1.0
    share: Tensor = operator_of(call)(call.q, call.k, v, call.mask)
    means: list[float] = share[:, :, rows].mean(dim=(0, 2, 3)).tolist()
    return means


def _to_cells(weights: Tensor, cells: Tensor, rows: Any) -> list[float]:
    chosen = cells.to(weights.device).reshape(-1, 1, *cells.shape[-2:])[:, :, rows]
    if chosen.shape[-2:] != weights.shape[-2:]:
        raise RequestError(f"cells of shape {tuple(cells.shape)} do not fit attention of shape {tuple(weights.shape[-2:])}.")
    share: list[float] = ((weights * chosen).sum(dim=(0, 2, 3)) / weights.sum(dim=(0, 2, 3))).tolist()
    return share


def _is_cells(region: Region) -> bool:
    return isinstance(region, Tensor) and region.dim() >= 2


def _indices(name: str, region: Region, keys: int) -> list[int]:
    if isinstance(region, Tensor) and region.dtype == torch.bool:
        region = region.nonzero().flatten()
    indices = [int(index) for index in region]
    if not indices or min(indices) < -keys or max(indices) >= keys:
        raise RequestError(f"region {name!r} is {indices}, but there are {keys} keys.")
    return indices


class Entering(NamedTuple):
    """The tokens that enter a site."""

    tokens: Tensor
    turned: bool
    """Whether they are (N, B, E) and not (B, N, E)."""


@contextmanager
def _entering(sites: list[Site]) -> Iterator[dict[int, Entering]]:
    """While inside, keep the first tokens that enter each site, by the index of the site."""
    kept: dict[int, Entering] = {}
    hooks = [site.module.register_forward_pre_hook(partial(_enter, kept, site.index), with_kwargs=True) for site in sites]
    try:
        yield kept
    finally:
        for hook in hooks:
            hook.remove()


def _enter(kept: dict[int, Entering], index: int, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tokens = next((x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.dim() == 3), None)
    if tokens is None or index in kept or not tokens.is_floating_point():
        return None
    new = tokens if tokens.requires_grad else tokens.detach().requires_grad_()  # data has no gradient yet
    kept[index] = Entering(new, isinstance(module, nn.MultiheadAttention) and not module.batch_first)
    return tuple(new if x is tokens else x for x in args), {key: new if x is tokens else x for key, x in kwargs.items()}


def _add_gradients(
    records: list[RegionRecord], loss: Tensor, entering: dict[int, Entering], regions: Mapping[str, Region], keys: dict[int, int]
) -> None:
    """Add the gradients of the tokens that enter a site, unless it attends to other tokens (cross attention)."""
    known = [record for record in records if record.index in entering]
    gradients = torch.autograd.grad(loss, [entering[record.index].tokens for record in known], allow_unused=True)
    for record, gradient in zip(known, gradients, strict=True):
        if gradient is None:
            continue
        by_token = gradient.transpose(0, 1) if entering[record.index].turned else gradient
        if by_token.shape[1] != keys[record.index]:
            continue
        for name, region in regions.items():
            if not _is_cells(region):
                record.gradient[name] = by_token[:, _indices(name, region, by_token.shape[1])].abs().mean().item()
