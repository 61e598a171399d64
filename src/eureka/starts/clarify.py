"""Rescale learned positions to the content they are added to.

    P ← P · asked · rms(content) / rms(positions)

Parameters that are content too are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from eureka.errors import RequestError
from eureka.formats import listing, measurement, number
from eureka.patching.attach import Site
from eureka.probes.additions import Addition
from eureka.probes.positions import Search, additions, trainable
from eureka.starts.calibrate import WITHIN, Kept, calibrate, distance, rounding


def clarify(model: nn.Module, inputs: Any, sites: Sequence[Site], first: Search, asked: float, kept: Kept) -> list[float]:
    """Rescale the positions that `first` found; their ratios to the content afterwards."""
    parameters = trainable(model)
    names = [learned(addition, parameters) for addition in first.learned]

    def measure() -> Mapping[int, list[float]]:
        found = additions(model, inputs, sites)
        return {index: [found[addition.number].ratio] for index, addition in enumerate(first.learned)}

    def scale(index: int, ratios: Sequence[float]) -> None:
        for name in names[index]:
            kept.scale(parameters[name], asked / ratios[0])

    found = calibrate(measure, scale, asked, lambda index: max(rounding(parameters[name]) for name in names[index]))
    for index, ratios in found.items():
        if distance(ratios, asked) > WITHIN:
            raise RequestError(
                f"the positions {listing(names[index])} are {measurement(ratios[0])} times the content after they were scaled to"
                f" be {number(asked)} times it: they do not reach it in proportion; nothing was changed, pass positions=None."
            )
    return [ratios[0] for ratios in found.values()]


def learned(addition: Addition, parameters: Mapping[str, nn.Parameter]) -> tuple[str, ...]:
    """The parameters that the positions of an addition come from; content must not come from them too."""
    names = tuple(name for name in parameters if name in addition.sources)
    if shared := addition.rest_sources.intersection(names):
        raise RequestError(f"{listing(sorted(shared))} is both position and content and cannot be rescaled; pass positions=None.")
    return names
