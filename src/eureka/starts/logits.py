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
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from eureka.attention.softmax import Softmax
from eureka.formats import measurement, number
from eureka.patching.attach import AttentionCall, Site, attached
from eureka.probes.capture import run_alike
from eureka.probes.fused_rows import FusedRows
from eureka.probes.head_statistics import head_spread
from eureka.probes.projections import Heads, Projection, apart, projections, why_missing
from eureka.starts.alone import Alone, alone
from eureka.starts.by_use import by_use
from eureka.starts.calibrate import WITHIN, Kept, calibrate, distance, rounding
from eureka.starts.elsewhere import used_elsewhere
from eureka.starts.sole import why_not_sole

Side = tuple[int, str]
"""W_Q or W_K of a site: its index, and "q" or "k"."""
SHARES = "shares W_Q or W_K with another that cannot be rescaled"
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
        self.unchecked: set[int] = set()
        """Sites that are rescaled without knowing whether W_Q and W_K make anything but q and k."""
        self._lost: dict[Side, str] = {}
        """Why W_Q or W_K of a site must stay as it is."""
        self._keys_are_values: set[int] = set()
        self._refused: dict[int, str] | None = None
        self._fused = FusedRows(sites)
        self._modules: dict[int, Alone] = {}
        self._by_use: dict[int, dict[str, Projection]] = {}

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

    def refused(self) -> dict[int, str]:
        """Why neither W_Q nor W_K of a site can be rescaled, by its index."""
        if self._refused is None:
            self._modules = alone(self.model, self.inputs, [self.sites[index] for index in self.heads])
            sides = [(index, letter) for index in self.heads for letter in "qk"]
            self._lost = {side: why for side in sides if (why := self._why_not(*side)) is not None}
            found = {index: {letter: self._projection(index, letter) for letter in self._letters(index)} for index in self.heads}
            asked = why_not_sole(self._modules, self.heads, {index: parts for index, parts in found.items() if parts})
            self._lost |= asked.reasons
            left = {(index, letter): self._projection(index, letter) for index in self.heads for letter in self._letters(index)}
            for index, letter in used_elsewhere(self.model, self.inputs, [self.sites[index] for index in self.heads], left):
                name = f"W_{letter.upper()}"
                self._lost[index, letter] = f"has a {name} that something else uses too, or {letter} does more than attend"
            self._refused = self._lose_whole_sites(asked.unknown)
            self.unchecked = asked.unknown - self._refused.keys()
            self._modules.clear()
        return self._refused

    def _lose_whole_sites(self, unknown: set[int]) -> dict[int, str]:
        """Which sites are left alone, and why; then both of their weights stay, wherever they are shared."""
        while True:
            self._lose_shared()
            refused = {index: why for index in self.heads if (why := self._why_neither(index, unknown)) is not None}
            rest = {(index, letter): why for index, why in refused.items() for letter in self._letters(index)}
            if not rest:
                return refused
            self._lost |= rest

    def lone(self) -> dict[int, tuple[str, str]]:
        """Sites of which W_Q or W_K alone is rescaled: which of the two, and why not the other."""
        kept = [index for index in self.heads if index not in self.refused()]
        return {index: (self._letters(index), self._why_lost(index)) for index in kept if self._letters(index) != "qk"}

    def _letters(self, index: int) -> str:
        """What may be rescaled of a site: "qk", "q", "k" or nothing."""
        return "".join(letter for letter in "qk" if (index, letter) not in self._lost)

    def _why_lost(self, index: int) -> str:
        return next(self._lost[index, letter] for letter in "qk" if (index, letter) in self._lost)

    def _why_neither(self, index: int, unknown: set[int]) -> str | None:
        """Why a site is left alone; one of the two alone is rescaled only if that was checked, and gives each head its factor."""
        letters, heads = self._letters(index), self.heads[index]
        if letters == "qk" or (letters and index not in unknown and (letters == "q" or heads.queries == heads.groups)):
            return None
        return self._why_lost(index)

    def _lose_shared(self) -> None:
        """What must stay at one site must stay at all others that share it."""
        while True:
            owners = defaultdict[nn.Parameter, set[int]](set, {part: {index} for part, index in self._idle_parameters()})
            for index, letter in self._lost:
                for part in self._parts(index, letter):
                    owners[part].add(index)
            kept = [(index, letter) for index in self.heads for letter in self._letters(index)]
            shared = [side for side in kept if any(owners[part] - {side[0]} for part in self._parts(*side))]
            if not shared:
                return
            self._lost |= dict.fromkeys(shared, SHARES)

    def _idle_parameters(self) -> list[tuple[nn.Parameter, int]]:
        """What the sites hold that were not called, unless they hold others that were."""
        called = {self.sites[index].owner for index in self.heads}
        idle = [site for site in self.sites.values() if site.index not in self.heads and called.isdisjoint(site.owner.modules())]
        return [(parameter, site.index) for site in idle for parameter in site.owner.parameters()]

    def sharpen(self, asked: float, kept: Kept) -> dict[int, list[float]]:
        """Scale every head of every site that is not refused, layer after layer; the spreads afterwards.

        A site that does not come to what is asked is put back, and refused from then on.
        """
        refused = self.refused()

        def scale(index: int, spreads: Sequence[float]) -> None:
            self._scale(index, [asked / spread for spread in spreads], kept)

        def tolerance(index: int) -> float:
            return max(rounding(self._projection(index, letter).parameter) for letter in self._letters(index))

        def measure() -> dict[int, list[float]]:
            found = {index: spreads for index, spreads in self.measure().items() if index not in refused}
            flat = {index: why for index, spreads in found.items() if (why := _why_flat(spreads, asked, self.heads[index]))}
            kept.put_back(self._refuse(flat))
            return measure() if flat else found

        while True:
            found = dict(calibrate(measure, scale, asked, tolerance))
            far = [index for index, spreads in found.items() if distance(spreads, asked) > WITHIN]
            if not far:
                return {index: list(spreads) for index, spreads in found.items()}
            kept.put_back(self._refuse({far[0]: _why_far(found[far[0]], asked)}))  # those behind it wait for their turn

    def _refuse(self, reasons: Mapping[int, str]) -> set[nn.Parameter]:
        """Refuse some sites, and those that share a weight with them, because what is scaled for one changes the other; their
        weights."""
        refused = self.refused()
        parts = {index: self._parameters(index) for index in self.heads if index not in refused}
        lost = {part for index in reasons for part in parts[index]}
        sharing = [index for index, own in parts.items() if not own.isdisjoint(lost)]
        refused.update(dict.fromkeys(sharing, SHARES) | dict(reasons))
        return {part for index in sharing for part in parts[index]}

    def _parameters(self, index: int) -> set[nn.Parameter]:
        return {part for letter in self._letters(index) for part in self._parts(index, letter)}

    def _parts(self, index: int, letter: str) -> list[nn.Parameter]:
        """Weight and bias of W_Q or W_K; none if it was not found."""
        found = self._found(index, letter)
        return [part for part in (found.parameter, found.bias) if part is not None] if found else []

    def _scale(self, index: int, factors: list[float], kept: Kept) -> None:
        heads, letters = self.heads[index], self._letters(index)
        whole = torch.tensor(factors[: heads.queries], dtype=torch.float64).reshape(heads.groups, -1)
        keys = whole.log().mean(dim=1, keepdim=True).mul(KEYS_SHARE[letters]).exp()
        for letter, each in {"q": whole / keys, "k": keys}.items():
            if letter in letters:
                scale_heads(self._projection(index, letter), each.flatten(), kept)

    def _projection(self, index: int, letter: str) -> Projection:
        found = self._found(index, letter)
        assert found is not None, "asked only of sites that are not refused"
        return found

    def _found(self, index: int, letter: str) -> Projection | None:
        return self._seen(index, letter) or projections(self.sites[index], self.heads[index]).get(letter)

    def _seen(self, index: int, letter: str) -> Projection | None:
        """What makes q or k, as a pass shows it: asked where no name tells it, or where one layer makes all, in what order."""
        site, heads = self.sites[index], self.heads[index]
        if (rows := self._fused.projection(site, letter)) is not None:
            return rows
        if apart(site, letter):
            return None
        if index not in self._by_use:
            self._by_use[index] = by_use(self._modules[index], heads) if index in self._modules else {}
        return self._by_use[index].get(letter)

    def _why_not(self, index: int, letter: str) -> str | None:
        """Why W_Q or W_K of a site must stay as it is, as far as that can be told without running its module."""
        if letter == "k" and index in self._keys_are_values:
            return "uses its keys as values, which would be scaled too"
        found, name = self._found(index, letter), f"W_{letter.upper()}"
        if found is None:
            return why_missing(self.sites[index], letter)
        heads, size = self.heads[index].queries if letter == "q" else self.heads[index].groups, self.heads[index].size
        rows = found.rows(found.parameter).shape[0]
        if rows != heads * size:
            return f"has a {name} of {rows} rows, and {heads} heads of {size} dimensions were seen"
        if not all(part is None or part.requires_grad for part in (found.parameter, found.bias)):
            return f"has a {name} that is frozen"
        if self._seen(index, letter) is None and self._makes_values(index, found):
            return f"has a {name} that is W_V too"
        return None

    def _makes_values(self, index: int, one: Projection) -> bool:
        """Whether some of its weights are those of W_V by their name, too."""
        values = projections(self.sites[index], self.heads[index]).get("v")
        if values is None or values.parameter is not one.parameter:
            return False
        places = _places(one.parameter)
        return bool(torch.isin(one.rows(places), values.rows(places)).any())


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
    _scale_rows(projection.parameter, projection.rows(_places(projection.parameter)), factors, kept)
    if projection.bias is not None:
        _scale_rows(projection.bias, projection.bias_rows(_places(projection.bias)), factors, kept)


def _places(parameter: nn.Parameter) -> Tensor:
    return torch.arange(parameter.numel(), device=parameter.device).view(parameter.shape)


def _scale_rows(parameter: nn.Parameter, places: Tensor, factors: Tensor, kept: Kept) -> None:
    each = torch.promote_types(parameter.dtype, torch.float32)
    factor = torch.ones(parameter.numel(), dtype=each, device=parameter.device)
    factor[places.reshape(len(factors), -1)] = factors.to(factor)[:, None]
    kept.scale(parameter, factor.view(parameter.shape))
