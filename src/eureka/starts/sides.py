"""Which of W_Q and W_K of each site may be rescaled, and why the others must stay.

Each is looked for by its name, by the rows of a fused layer that a pass shows, or by what it does. It must stay if it is frozen,
if it makes values or a gate too, or if something else uses it; then it also stays at every other site that shares it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from eureka.patching.attach import Site
from eureka.probes.fused_rows import FusedRows
from eureka.probes.projections import Heads, Projection, apart, projections, why_missing
from eureka.starts.alone import alone
from eureka.starts.by_use import by_use
from eureka.starts.elsewhere import Side, other_uses
from eureka.starts.sole import CROSSED, Asked, why_not_sole

KEYS_ARE_VALUES = "uses its keys as values, which would be scaled too"
SHARES = "shares W_Q or W_K with another that cannot be rescaled"


class Sides:
    """W_Q and W_K of the sites that a pass has called, by the index of the site."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        sites: Mapping[int, Site],
        heads: Mapping[int, Heads],
        fused: FusedRows,
        keys_are_values: Iterable[int],
    ) -> None:
        self._sites, self._heads, self._fused = sites, heads, fused
        called = [sites[index] for index in heads]
        self._modules = alone(model, inputs, called)
        self._by_use: dict[int, dict[str, Projection]] = {}
        self._crossed = set[Side]()
        """Those whose heads lie otherwise than their name says: what they do tells them."""
        self._lost: dict[Side, str] = {
            (index, "k"): "uses its keys as values, which would be scaled too" for index in keys_are_values
        }
        """Why W_Q or W_K of a site must stay as it is."""
        self._lost |= {side: why for side in self._left() if (why := self._why_not(*side)) is not None}
        asked = self._asked()
        self._lost |= asked.reasons
        left = {side: self.projection(*side) for side in self._left()}
        uses = other_uses(model, inputs, called, left)
        for index, letter in uses.elsewhere:
            name = f"W_{letter.upper()}"
            self._lost[index, letter] = f"has a {name} that something else uses too, or {letter} does more than attend"
        self.refused = self._lose_whole_sites(asked.unknown)
        """Why neither W_Q nor W_K of a site can be rescaled, by its index."""
        self.unchecked = asked.unknown - self.refused.keys()
        """Sites that are rescaled without knowing whether W_Q and W_K make anything but q and k."""
        self.handed_out = uses.handed_out
        """Sites whose keys the model gives out, which grow with W_K."""
        self._modules.clear()

    def letters(self, index: int) -> str:
        """What may be rescaled of a site: "qk", "q", "k" or nothing."""
        return "".join(letter for letter in "qk" if (index, letter) not in self._lost)

    def projection(self, index: int, letter: str) -> Projection:
        """W_Q or W_K of a site that may be rescaled."""
        found = self._found(index, letter)
        assert found is not None, "asked only of what may be rescaled"
        return found

    def lone(self) -> dict[int, tuple[str, str]]:
        """Sites of which W_Q or W_K alone is rescaled: which of the two, and why not the other."""
        kept = [index for index in self._heads if index not in self.refused]
        return {index: (self.letters(index), self._why_lost(index)) for index in kept if self.letters(index) != "qk"}

    def refuse(self, reasons: Mapping[int, str]) -> set[nn.Parameter]:
        """Refuse some sites, and those that share a weight with them, because what is scaled for one changes the other; their
        weights."""
        parts = {index: self._parameters(index) for index in self._heads if index not in self.refused}
        lost = {part for index in reasons for part in parts[index]}
        sharing = [index for index, own in parts.items() if not own.isdisjoint(lost)]
        self.refused.update(dict.fromkeys(sharing, SHARES) | dict(reasons))
        return {part for index in sharing for part in parts[index]}

    def _asked(self) -> Asked:
        """What the modules say; again of weights whose heads lie otherwise than their name says, if what they do tells them."""
        asked = why_not_sole(self._modules, self._heads, self._by_site())
        crossed = {side for side, why in asked.reasons.items() if why == CROSSED and apart(self._sites[side[0]], side[1])}
        self._crossed = {side for side in crossed if self._used(*side) is not None}
        again = {index: self._by_site()[index] for index, _ in self._crossed}
        now = why_not_sole(self._modules, self._heads, again)
        reasons = {side: why for side, why in asked.reasons.items() if side not in self._crossed}
        return Asked(reasons | now.reasons, asked.unknown | now.unknown)

    def _left(self) -> list[Side]:
        """What may be rescaled, as far as it is known."""
        return [(index, letter) for index in self._heads for letter in self.letters(index)]

    def _by_site(self) -> dict[int, dict[str, Projection]]:
        every = {index: {letter: self.projection(index, letter) for letter in self.letters(index)} for index in self._heads}
        return {index: parts for index, parts in every.items() if parts}

    def _lose_whole_sites(self, unknown: set[int]) -> dict[int, str]:
        """Which sites are left alone, and why; then both of their weights stay, wherever they are shared."""
        while True:
            self._lose_shared()
            refused = {index: why for index in self._heads if (why := self._why_neither(index, unknown)) is not None}
            rest = {(index, letter): why for index, why in refused.items() for letter in self.letters(index)}
            if not rest:
                return refused
            self._lost |= rest

    def _lose_shared(self) -> None:
        """What must stay at one site must stay at all others that share it."""
        while True:
            owners = defaultdict[nn.Parameter, set[int]](set, {part: {index} for part, index in self._idle_parameters()})
            for index, letter in self._lost:
                for part in self._parts(index, letter):
                    owners[part].add(index)
            shared = [side for side in self._left() if any(owners[part] - {side[0]} for part in self._parts(*side))]
            if not shared:
                return
            self._lost |= dict.fromkeys(shared, SHARES)

    def _idle_parameters(self) -> list[tuple[nn.Parameter, int]]:
        """What the sites hold that were not called, unless they hold others that were."""
        called = {self._sites[index].owner for index in self._heads}
        idle = [
            site for site in self._sites.values() if site.index not in self._heads and called.isdisjoint(site.owner.modules())
        ]
        return [(parameter, site.index) for site in idle for parameter in site.owner.parameters()]

    def _why_lost(self, index: int) -> str:
        return next(self._lost[index, letter] for letter in "qk" if (index, letter) in self._lost)

    def _why_neither(self, index: int, unknown: set[int]) -> str | None:
        """Why a site is left alone; one of the two alone is rescaled only if that was checked, and gives each head its factor."""
        letters, heads = self.letters(index), self._heads[index]
        if letters == "qk" or (letters and index not in unknown and (letters == "q" or heads.queries == heads.groups)):
            return None
        return self._why_lost(index)

    def _why_not(self, index: int, letter: str) -> str | None:
        """Why W_Q or W_K of a site must stay as it is, as far as that can be told without running its module."""
        found, name = self._found(index, letter), f"W_{letter.upper()}"
        if found is None:
            return why_missing(self._sites[index], letter)
        heads, size = self._heads[index].queries if letter == "q" else self._heads[index].groups, self._heads[index].size
        rows = found.rows(found.parameter).shape[0]
        if rows != heads * size:
            return f"has a {name} of {rows} rows, and {heads} heads of {size} dimensions were seen"
        if not all(part.requires_grad or not part.any() for part, _ in found.places()):
            return f"has a {name} that is frozen"
        if self._seen(index, letter) is None and self._makes_values(index, found):
            return f"has a {name} that is W_V too"
        return None

    def _makes_values(self, index: int, one: Projection) -> bool:
        """Whether some of its weights are those of W_V by their name, too."""
        values = projections(self._sites[index], self._heads[index]).get("v")
        if values is None or values.parameter is not one.parameter:
            return False
        (_, own), (_, theirs) = one.places()[0], values.places()[0]
        return bool(torch.isin(own, theirs).any())

    def _parameters(self, index: int) -> set[nn.Parameter]:
        return {part for letter in self.letters(index) for part in self._parts(index, letter)}

    def _parts(self, index: int, letter: str) -> list[nn.Parameter]:
        """Weight and bias of W_Q or W_K; none if it was not found."""
        found = self._found(index, letter)
        return [part for part, _ in found.places()] if found else []

    def _found(self, index: int, letter: str) -> Projection | None:
        return self._seen(index, letter) or projections(self._sites[index], self._heads[index]).get(letter)

    def _seen(self, index: int, letter: str) -> Projection | None:
        """What makes q or k, as a pass shows it: asked where no name tells it, or where one layer makes all, in what order."""
        if (rows := self._fused.projection(self._sites[index], letter)) is not None:
            return rows
        named = apart(self._sites[index], letter) and (index, letter) not in self._crossed
        return None if named else self._used(index, letter)

    def _used(self, index: int, letter: str) -> Projection | None:
        """What makes q or k, as what it does shows it."""
        if index not in self._by_use:
            self._by_use[index] = by_use(self._modules[index], self._heads[index]) if index in self._modules else {}
        return self._by_use[index].get(letter)
