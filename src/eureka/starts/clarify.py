"""Rescale learned positions to the content they are added to.

    P ← P · asked · rms(content) / rms(positions)

Positions that are added in several places, as those of a Decision Transformer to states, actions and returns, have one ratio over
all of them. Parameters that are content too are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from eureka.errors import RequestError
from eureka.formats import listing, measurement, number
from eureka.patching.attach import Site
from eureka.probes.additions import Addition
from eureka.probes.positions import Search, additions, trainable
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


def _squares(addition: Addition, x: Tensor) -> float:
    """The sum of squares over the tokens that count."""
    tokens = x[..., 0].numel() if addition.real is None else int(addition.real.sum())
    return addition.rms(x).item() ** 2 * tokens * x.shape[-1]


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
    model: nn.Module, inputs: Any, sites: Sequence[Site], first: Sequence[Positions], asked: float, kept: Kept
) -> list[float]:
    """Rescale positions; their ratios to the content afterwards."""
    parameters = trainable(model)

    def measure() -> Mapping[int, list[float]]:
        found = additions(model, inputs, sites)
        return {index: [one.ratio([found[place.number] for place in one.places])] for index, one in enumerate(first)}

    def scale(index: int, ratios: Sequence[float]) -> None:
        for name in first[index].names:
            kept.scale(parameters[name], asked / ratios[0])

    found = calibrate(measure, scale, asked, lambda index: max(rounding(parameters[name]) for name in first[index].names))
    for index, ratios in found.items():
        if distance(ratios, asked) > WITHIN:
            raise RequestError(
                f"the positions {listing(first[index].names)} are {measurement(ratios[0])} times the content after they were"
                f" scaled to be {number(asked)} times it: they do not reach it in proportion, because a norm or a product"
                " stands between; nothing was changed, pass positions=None."
            )
    return [ratios[0] for ratios in found.values()]


def _learned(addition: Addition, parameters: Mapping[str, nn.Parameter]) -> tuple[str, ...]:
    """The parameters that the positions of an addition come from, without a single number that they are multiplied by; content
    must not come from them too."""
    every = [name for name in parameters if name in addition.sources]
    names = tuple(name for name in every if parameters[name].numel() > 1) or tuple(every)
    if shared := addition.rest_sources.intersection(names):
        raise RequestError(f"{listing(sorted(shared))} is both position and content and cannot be rescaled; pass positions=None.")
    return names
