"""Rescale learned positions to the content they are added to.

    P ← P · asked · rms(content) / rms(positions)

Positions that are added in several places, as those of a Decision Transformer to states, actions and returns, have one ratio over
all of them. Parameters that are content too, or that do not reach it in proportion, stay as they were.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from eureka.formats import listing, measurement, number
from eureka.patching.attach import Site
from eureka.probes.additions import Addition
from eureka.probes.positions import Search, additions, trainable
from eureka.starts.alone import elements_multiplied
from eureka.starts.calibrate import WITHIN, Kept, calibrate, distance, rounding


@dataclass(frozen=True)
class Positions:
    """Parameters that are rescaled together, and the sums that they are part of."""

    names: tuple[str, ...]
    places: tuple[Addition, ...]

    def ratio(self, places: Sequence[Addition] | None = None) -> float:
        """rms(positions) / rms(content) over all places, or over those of another pass."""
        found = self.places if places is None else places
        if len(found) == 1:
            return found[0].ratio
        position, content = (sum(map(_squares, found, (getattr(one, part) for one in found))) for part in ("term", "rest"))
        return math.sqrt(position / content) if content > 0 else math.inf


class Clarified(NamedTuple):
    """What became of positions, by their place in the sequence that was given."""

    before: dict[int, float]
    """Their ratio to the content, where they were rescaled."""
    ratios: dict[int, float]
    """The same afterwards."""
    reasons: dict[int, str]
    """Why they are as they were."""


def _squares(addition: Addition, x: Tensor) -> float:
    """The sum of squares over the tokens that count."""
    return addition.rms(x).item() ** 2 * addition.numbers


def positions_of(model: nn.Module, found: Search) -> list[Positions]:
    """The learned positions that were found, those of the same parameters together."""
    parameters = trainable(model)
    together: list[tuple[set[str], list[Addition]]] = []
    for addition in found.learned:
        names, places = set(_learned(addition, parameters)), [addition]
        for group in [group for group in together if group[0] & names]:
            together.remove(group)
            names, places = group[0] | names, group[1] + places
        together.append((names, places))
    return [Positions(tuple(name for name in parameters if name in names), tuple(places)) for names, places in together]


def clarify(
    model: nn.Module, inputs: Any, sites: Sequence[Site], every: Sequence[Positions], asked: float, kept: Kept
) -> Clarified:
    """Rescale positions; those that do not come to what is asked are put back."""
    parameters = trainable(model)
    reasons = {index: why for index, one in enumerate(every) if (why := _why_shared(one)) is not None}
    for index, one in enumerate(every):
        if index not in reasons:
            with elements_multiplied([(parameters[name], torch.ones_like(parameters[name])) for name in one.names]):
                twice = additions(model, inputs, sites)
            if (why := _why_bent(one, [place.again(twice) for place in one.places], parameters)) is not None:
                reasons[index] = why
    kept.put_back([parameters[name] for index in reasons for name in every[index].names])  # those that were zero are drawn

    def measure() -> Mapping[int, list[float]]:
        found = additions(model, inputs, sites)
        left = [(index, one) for index, one in enumerate(every) if index not in reasons]
        return {index: [one.ratio([place.again(found) for place in one.places])] for index, one in left}

    def scale(index: int, ratios: Sequence[float]) -> None:
        for name in every[index].names:
            kept.scale(parameters[name], asked / ratios[0])

    def tolerance(index: int) -> float:
        return max(rounding(parameters[name]) for name in every[index].names)

    before = {index: values[0] for index, values in measure().items()}
    while True:
        ratios = {index: values[0] for index, values in calibrate(measure, scale, asked, tolerance).items()}
        far = next((index for index, ratio in ratios.items() if distance([ratio], asked) > WITHIN), None)
        if far is None:
            return Clarified({index: before[index] for index in ratios}, ratios, reasons)
        kept.put_back(parameters[name] for name in every[far].names)
        reasons[far] = (
            f"they are {measurement(ratios[far])} times the content after they were scaled to be {number(asked)} times it, and do"
            " not reach it in proportion"
        )


def _why_shared(one: Positions) -> str | None:
    """Why positions that content comes from too must stay."""
    content = frozenset[str]().union(*(place.rest_sources for place in one.places))
    shared = sorted(content.intersection(one.names))
    return f"{listing(shared)} {'is' if len(shared) == 1 else 'are'} content too" if shared else None


def _why_bent(one: Positions, twice: Sequence[Addition], parameters: Mapping[str, nn.Parameter]) -> str | None:
    """Why positions must stay that, doubled, do not double where they are added, or change the content there."""
    if not _is_times(one.places[0].rest, twice[0].rest, 1):
        return f"content is made of {'it' if len(one.names) == 1 else 'them'} too"
    if all(_is_times(place.term, now.term, 2) for place, now in zip(one.places, twice, strict=True)):
        return None
    fixed = sorted(frozenset[str]().union(*(place.sources for place in one.places)) - parameters.keys())
    added = listing(fixed) if fixed else "something"
    return f"they do not reach the content in proportion: a norm or a product stands between, or {added} is added to them"


def _is_times(once: Tensor, now: Tensor, factor: int) -> bool:
    return bool((now - factor * once).abs().max() <= WITHIN * once.abs().max())


def _learned(addition: Addition, parameters: Mapping[str, nn.Parameter]) -> tuple[str, ...]:
    """The parameters that the positions of an addition come from, without a single number that they are multiplied by."""
    every = [name for name in parameters if name in addition.sources]
    return tuple(name for name in every if parameters[name].numel() > 1) or tuple(every)
