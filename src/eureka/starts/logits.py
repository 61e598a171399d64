"""Rescale W_Q and W_K of every head so that the logits start with the spread that is asked.

A row of logits is a_ij = q_i·k_j/√d over the keys that query i sees, and its spread is their standard deviation. The spread of a
head is the mean over its rows with two visible keys or more. It is proportional to |W_Q|·|W_K|, so with f = asked / spread

    W_Q ← √f · W_Q,   W_K ← √f · W_K   (biases too)

Query heads that share a key head have one factor for the keys: the geometric mean of their √f. Their queries take the rest.
Where only one of the two may be rescaled, because the other makes values too (multi-head latent attention) or a gate, it takes
the whole f.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from eureka.attention.softmax import Softmax
from eureka.formats import measurement, number
from eureka.patching.attach import AttentionCall, Site, attached
from eureka.probes.capture import run_alike
from eureka.probes.fused_rows import FusedRows
from eureka.probes.head_statistics import head_spread
from eureka.probes.projections import Heads, Projection
from eureka.starts.calibrate import WITHIN, Kept, calibrate, distance, rounding
from eureka.starts.sides import Sides

KEYS_SHARE = {"qk": 0.5, "q": 0.0, "k": 1.0}
"""The power of the factor that W_K takes, by the letters that are rescaled."""
LARGEST = 1e7
"""A factor beyond this would only enlarge rounding errors."""


class Logits:
    """The sites of a model, their spreads on one batch, and the weights that decide them."""

    def __init__(self, model: nn.Module, inputs: Any, sites: Sequence[Site]) -> None:
        self.model, self.inputs, self.sites = model, inputs, {site.index: site for site in sites}
        self.heads: dict[int, Heads] = {}
        """The heads of each site that was called."""
        self.spreads: dict[int, list[float]] = {}
        """What `measure` found last."""
        self.operators: set[str] = set()
        """Operators other than plain softmax that were met."""
        self._keys_are_values: set[int] = set()
        self._fused = FusedRows(sites)

    def measure(self) -> dict[int, list[float]]:
        """The spread of each head by the index of the site, in the order of the calls; of each call if there are several."""
        found: dict[int, list[float]] = {}

        def observe(site: Site, call: AttentionCall) -> None:
            if site.index not in self.heads:
                self.heads[site.index] = _heads(call)
            self._fused.see(site, call, self.heads[site.index].groups)
            if call.operator is not None and not isinstance(call.operator, Softmax):
                self.operators.add(type(call.operator).__name__)
            if call.v is not None and call.k.data_ptr() == call.v.data_ptr():
                self._keys_are_values.add(site.index)
            root = math.sqrt(call.q.shape[-1])
            found.setdefault(site.index, []).extend(s / root for s in head_spread(call.q, call.k, call.mask))

        with attached(self.model, list(self.sites.values()), observer=observe), self._fused.watching():
            run_alike(self.model, self.inputs)
        self.spreads = found
        return found

    @cached_property
    def sides(self) -> Sides:
        """Which of W_Q and W_K may be rescaled, of the sites that `measure` has met."""
        return Sides(self.model, self.inputs, self.sites, self.heads, self._fused, self._keys_are_values)

    def sharpen(self, asked: float, kept: Kept) -> dict[int, list[float]]:
        """Scale every head of every site that is not refused, layer after layer; the spreads afterwards.

        A site that does not come to what is asked is put back, and refused from then on.
        """
        sides = self.sides

        def scale(index: int, spreads: Sequence[float]) -> None:
            self._scale(index, [asked / spread for spread in spreads], kept)

        def tolerance(index: int) -> float:
            return max(rounding(sides.projection(index, letter).parameter) for letter in sides.letters(index))

        def measure() -> dict[int, list[float]]:
            found = {index: spreads for index, spreads in self.measure().items() if index not in sides.refused}
            flat = {index: why for index, spreads in found.items() if (why := _why_flat(spreads, asked, self.heads[index]))}
            kept.put_back(sides.refuse(flat))
            return measure() if flat else found

        while True:
            found = dict(calibrate(measure, scale, asked, tolerance))
            far = [index for index, spreads in found.items() if distance(spreads, asked) > WITHIN]
            if not far:
                return {index: list(spreads) for index, spreads in found.items()}
            kept.put_back(sides.refuse({far[0]: _why_far(found[far[0]], asked)}))  # those behind it wait for their turn

    def _scale(self, index: int, factors: list[float], kept: Kept) -> None:
        heads, letters = self.heads[index], self.sides.letters(index)
        whole = torch.tensor(factors[: heads.queries], dtype=torch.float64).reshape(heads.groups, -1)
        keys = whole.log().mean(dim=1, keepdim=True).mul(KEYS_SHARE[letters]).exp()
        for letter, each in {"q": whole / keys, "k": keys}.items():
            if letter in letters:
                scale_heads(self.sides.projection(index, letter), each.flatten(), kept)


def _why_flat(spreads: Sequence[float], asked: float, heads: Heads) -> str | None:
    """Why no factor brings logits to what is asked; None if one does."""
    flat = next((head % heads.queries for head, spread in enumerate(spreads) if not spread > asked / LARGEST), None)
    if flat is None:  # NaN is flat: no row sees two keys
        return None
    return (
        f"has logits without any spread on this batch (head {flat}): its weights are zero, its rows see one key or equal keys, or"
        " values are not finite"
    )


def _why_far(spreads: Sequence[float], asked: float) -> str:
    worst = max(spreads, key=lambda spread: abs(spread / asked - 1))
    return (
        f"has a spread of {measurement(worst)} after W_Q and W_K were scaled to give {number(asked)}: layers share them, it"
        " attends several times, or something stands between them and the logits"
    )


def _heads(call: AttentionCall) -> Heads:
    groups = _groups(call.k)
    value_heads = groups if call.value_heads == call.k.shape[1] else call.value_heads
    return Heads(call.q.shape[1], groups, call.k.shape[-1], value_heads * (call.k if call.v is None else call.v).shape[-1])


def _groups(k: Tensor) -> int:
    """How many key heads there are, if each may have been repeated for its query heads."""
    heads = k.shape[1]
    divisors = (n for n in range(1, heads) if heads % n == 0)
    return next((n for n in divisors if torch.equal(k[:, :: heads // n].repeat_interleave(heads // n, dim=1), k)), heads)


def scale_heads(projection: Projection, factors: Tensor, kept: Kept) -> None:
    """Multiply the rows of each head, weight and bias, by its factor; what else the parameter holds stays bit for bit."""
    for parameter, places in projection.places():
        each = torch.promote_types(parameter.dtype, torch.float32)
        factor = torch.ones(parameter.numel(), dtype=each, device=parameter.device)
        factor[places.reshape(len(factors), -1)] = factors.to(factor)[:, None]
        kept.scale(parameter, factor.view(parameter.shape))
