"""Induction-head scores: does a head look at what came after the present token before, and does it copy what it looks at?

An induction head completes [A][B] … [A] with [B] (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"; Olsson
et al. 2022, "In-context Learning and Induction Heads"). With A the weights of a head and t the tokens of a sample, the place i
looks at the *targets* T(i) = {j < i : t_{j-1} = t_i}, the tokens right after earlier occurrences of its own.

    prefix_matching   the mean of Σ_{j ∈ T(i)} A_ij over the places i that have a target, after Olsson et al.
    prefix_chance     the same if attention were even: if all q·k were alike
    previous_token    the mean of A_{i, i-1}; an induction head needs such a head below it, to tell tokens what they follow
    copying           in [-1, 1]: `eureka.probes.copying`

A place that does not see itself is padding and does not count. Tokens that are not repeated have no targets: then there is no
prefix_matching. Weights that are no distribution (linear, sigmoid) are taken as |w| / Σ|w|.

No Q×K matrix is made for anything in the softmax family: shares of attention are summed in blocks of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from eureka.attention.fused import repeat_heads
from eureka.attention.statistics import Cells, attention_shares
from eureka.errors import RequestError
from eureka.patching.attach import AttentionCall, Layers, Site, attached
from eureka.probes.capture import check_model, left_alone, named_type, run_model, sites_of
from eureka.probes.copying import Copying
from eureka.probes.head_statistics import first_samples, head_means, in_family, logit_factors
from eureka.runs import SiteRecord


@dataclass(frozen=True)
class Shown:
    """The tokens that a pass sees."""

    tokens: Tensor
    """(B, N) integers: two places that hold the same token have the same number"""
    asked: Tensor | None = None
    """(B, N) boolean: the places at which prefix matching counts; None for all"""

    def fits(self, call: AttentionCall) -> bool:
        """Whether these are the queries and the keys of a call."""
        return tuple(self.tokens.shape) == (len(call.q), call.q.shape[2]) and call.q.shape[2] == call.k.shape[2]


def induction_scores(
    model: nn.Module, inputs: Any, tokens: Tensor | None = None, *, layers: Layers | None = None
) -> list[SiteRecord]:
    """The induction-head scores of every layer and head on one batch; the model stays as it is.

    Args:
        model: the one to look at
        inputs: one batch, as the model takes it (a mapping is passed by keyword); random tokens, said twice, are usual
        tokens: (B, N) integers that say which places hold the same token; by default the inputs, or their "input_ids"
        layers: which sites, as for `eureka.patch`

    Returns:
        a record for each site, with a list for each measure, a number for each head. A measure that there is nothing to take from
        is left out: "prefix_matching" and "prefix_chance" if no token is repeated, "copying" as `eureka.probes.copying` says.

    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=2, n_head=2))
    >>> first, second = induction_scores(model, torch.randint(50, (4, 8)).repeat(1, 2))
    >>> list(first.values)
    ['prefix_matching', 'prefix_chance', 'previous_token', 'copying']
    """
    check_model(model)
    shown = Shown(_tokens(inputs) if tokens is None else tokens)
    _check_tokens(shown.tokens)
    sites, found = sites_of(model, layers), dict[int, dict[str, list[float]]]()
    copying = Copying(model, sites)

    def observe(site: Site, call: AttentionCall) -> None:
        if site.index not in found and shown.fits(call):
            found[site.index] = attention_scores(call, shown) | copying.scores(site, call.q.shape[1], call.value_heads)

    with torch.no_grad(), left_alone(model), attached(model, sites, observer=observe):
        run_model(model, inputs)
    if not found:
        raise RequestError(
            f"no attention of {type(model).__name__} is over tokens of shape {tuple(shown.tokens.shape)}: give tokens=…, a number"
            " for each place that the model attends to."
        )
    return [SiteRecord(site.index, site.name, found[site.index]) for site in sites if site.index in found]


def _tokens(inputs: Any) -> Tensor:
    tokens = inputs.get("input_ids") if isinstance(inputs, Mapping) else inputs
    if not isinstance(tokens, Tensor) or tokens.is_floating_point() or tokens.dim() != 2:
        raise RequestError("the inputs are no tokens; give tokens=…, integers that say which places hold the same.")
    return tokens


def _check_tokens(tokens: Any) -> None:
    if not isinstance(tokens, Tensor):
        raise RequestError(f"tokens is a tensor of integers, (samples, tokens), not {named_type(tokens)}.")
    if tokens.is_floating_point() or tokens.is_complex() or tokens.dim() != 2:
        kind = str(tokens.dtype).removeprefix("torch.")
        raise RequestError(f"tokens is a tensor of integers, (samples, tokens), not {named_type(tokens)} of {kind}.")
    if not len(tokens) or tokens.shape[1] < 2:
        raise RequestError(f"tokens has the shape {tuple(tokens.shape)}; give a sample or more, of two tokens or more.")


@torch.no_grad()
def attention_scores(call: AttentionCall, shown: Shown, samples: int | None = None) -> dict[str, list[float]]:
    """Prefix matching, its chance and the previous-token score of each head, over the first `samples` of the batch."""
    q, k, mask = first_samples(call, samples)
    tokens = shown.tokens[: len(q)].to(q.device)
    regions = [_targets(tokens), _back(tokens, 1), _back(tokens, 0)]
    even, before, itself = attention_shares(torch.zeros_like(q), k, 1.0, regions, mask)
    if in_family(call):
        q, k, beta = logit_factors(call, q, k, mask)
        prefix, previous = attention_shares(q, k, beta, regions[:2], mask)
    else:
        assert call.operator is not None
        weights = call.operator.weights(q, repeat_heads(k, q.shape[1]), mask).abs()
        whole = weights.sum(dim=-1).clamp_min(torch.finfo(weights.dtype).tiny)
        prefix, previous = ((weights * cells(slice(0, q.shape[2]))).sum(dim=-1) / whole for cells in regions[:2])
    present = itself > 0
    counted = present & (even > 0)
    if shown.asked is not None:
        counted = counted & shown.asked[: len(q), None].to(q.device)
    scores = {}
    if counted.any():
        scores = {"prefix_matching": head_means(prefix, counted), "prefix_chance": head_means(even, counted)}
    return scores | {"previous_token": head_means(previous, present & (before > 0))}


def _targets(tokens: Tensor) -> Cells:
    """The tokens right after earlier occurrences of each row's own token."""
    place = torch.arange(tokens.shape[1], device=tokens.device)

    def cells(rows: slice) -> Tensor:
        same = tokens[:, rows, None] == tokens.roll(1, dims=1)[:, None]
        earlier = (place[None] < place[rows, None]) & (place[None] > 0)
        return (same & earlier)[:, None]

    return cells


def _back(tokens: Tensor, places: int) -> Cells:
    """The token that stands so many places before each row's own."""
    place = torch.arange(tokens.shape[1], device=tokens.device)
    return lambda rows: place[None] == place[rows, None] - places
