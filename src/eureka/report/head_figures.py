"""What each head did over training, as the page's script gets it: induction-head scores beside entropy and gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eureka.report.attention_figures import first_seeds, is_scored
from eureka.report.curve_data import Values, rounded
from eureka.report.groups import Groups
from eureka.report.report_run import Moment, ReportRun
from eureka.runs import ProbeRecord
from eureka.thinning import BUCKETS, thin

NUMBERS = 28_000
"""How many numbers the curves of all runs may have, about 200 kB; those of a larger study are thinned until they fit."""
MOST = 60
"""Of more runs than these the first seeds of each fix and panel are shown."""

Array = np.ndarray[Any, Any]
Head = tuple[int, int]
"""Layer and head, from 0."""


@dataclass(frozen=True)
class HeadCurves:
    """One run: a curve for each head."""

    name: str
    fix: int
    panel: int
    seed: int
    leap: Moment | None
    layers: int
    heads: list[Head]
    steps: list[int]
    prefix: list[Values]
    chance: Values
    """prefix matching if attention were even"""
    previous: list[Values]
    copying: list[Values]
    """empty where it was not measured"""
    entropy: list[Values]
    ratio: list[Values]


MEASURES = {
    "prefix": "prefix_matching",
    "previous": "previous_token",
    "copying": "copying",
    "entropy": "entropy",
    "ratio": "grad_ratio",
}
"""The fields of `HeadCurves` that have a curve for each head, and their measures."""


def head_figures(groups: Groups) -> list[HeadCurves]:
    """Every run that has induction-head scores, by fix, panel and seed; if they are too many, the first seeds of each."""
    scored = [i for i, run in enumerate(groups.runs) if is_scored(run)]
    chosen = [groups.runs[i] for i in first_seeds(groups, scored)[:MOST]]
    chosen.sort(key=lambda run: (groups.fix_of(run).index, groups.panel_of(run), run.config.seed))
    return [_curves(groups, run, NUMBERS // len(chosen)) for run in chosen]


def _curves(groups: Groups, run: ReportRun, numbers: int) -> HeadCurves:
    records = run.attention
    heads = _heads(records)
    found = {name: _of_heads(records, heads, measure) for name, measure in MEASURES.items()}
    chosen = _thinned(found, numbers)
    curves = {name: _drawn(values[:, chosen]) for name, values in found.items()}
    return HeadCurves(
        name=groups.name_of(run),
        fix=groups.fix_of(run).index,
        panel=groups.panel_of(run),
        seed=run.config.seed,
        leap=run.moment,
        layers=1 + max(layer for layer, _ in heads),
        heads=heads,
        steps=[records[i].step for i in chosen],
        chance=_rounded(_of_heads(records, heads, "prefix_chance")[-1, chosen]),
        **curves,
    )


def _thinned(found: Mapping[str, Array], numbers: int) -> Array:
    """Which records are drawn, of each measure by its highest head: about so many numbers in all."""
    curves = sum(len(values) for values in found.values())
    buckets = max(10, min(BUCKETS, numbers // (2 * len(found) * curves)))
    highest = [np.where(np.isfinite(values), values, -np.inf).max(axis=0) for values in found.values()]
    return thin(highest, buckets=buckets)


def _heads(records: Sequence[ProbeRecord]) -> list[Head]:
    """All heads of the model; what a group of heads shares counts for each of them."""
    most: dict[int, int] = {}
    for record in records:
        for layer, site in enumerate(record.sites):
            most[layer] = max(most.get(layer, 0), *(len(values) for values in site.values.values()), 1)
    return [(layer, head) for layer, heads in most.items() for head in range(heads)]


def _of_heads(records: Sequence[ProbeRecord], heads: Sequence[Head], measure: str) -> Array:
    """(head, record); NaN where it was not measured."""
    found = np.full((len(heads), len(records)), np.nan)
    for i, record in enumerate(records):
        for place, (layer, head) in enumerate(heads):
            values = record.sites[layer].values.get(measure, []) if layer < len(record.sites) else []
            if values:
                found[place, i] = values[min(head, len(values) - 1)]
    return found


def _drawn(values: Array) -> list[Values]:
    """The curves of all heads; none where nothing was measured."""
    return [_rounded(curve) for curve in values] if np.isfinite(values).any() else []


def _rounded(values: Array) -> Values:
    return [rounded(value, 4) for value in values]
