"""What attention did, as the page's script gets it: entropy, gradients and position share over training, weights on one sample,
linear probes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eureka.errors import DamagedRunError
from eureka.report.curve_data import SharedSteps, Values, rounded
from eureka.report.groups import Groups
from eureka.report.report_run import Moment, ReportRun
from eureka.runs import LinearProbe, ProbeRecord
from eureka.thinning import BUCKETS, thin

MEASURES = ("entropy", "grad_ratio")
NUMBERS = 28_000
"""How many numbers the curves of all runs may have, about 200 kB; those of a larger study are thinned until they fit."""
MAP_BYTES = 315_000
"""How large all maps together may be, before they are written as text; else first steps and then runs are left out."""
FRAMES = 4
"""How many steps a slider should have at least."""

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class AttentionCurves:
    """One run: a curve for each layer, the mean over its heads."""

    fix: int
    panel: int
    seed: int
    state: str
    leap: Moment | None
    steps: int
    """which of the lists of steps"""
    entropy: list[Values]
    ratio: list[Values]
    share: Values
    """the position share of the logits of the first attention; empty in a run that did not measure it"""
    prefix: list[Values]
    """prefix matching of the best head of each layer; empty where the task repeats nothing"""


@dataclass(frozen=True)
class AttentionFigure:
    layers: int
    steps: list[list[int]]
    runs: list[AttentionCurves]

    @property
    def has_shares(self) -> bool:
        return any(run.share for run in self.runs)

    @property
    def has_prefixes(self) -> bool:
        return any(run.prefix for run in self.runs)


@dataclass(frozen=True)
class AttentionMaps:
    """The weights of one run at some steps, as bytes in base 64: 255 √(weight / highest weight)."""

    name: str
    steps: list[int]
    leap: Moment | None
    layers: int
    heads: int
    queries: int
    keys: int
    tokens: list[str]
    """the names of the tokens; empty where they are not known"""
    top: float
    """the highest weight"""
    data: str


@dataclass(frozen=True)
class ReadingLine:
    """How well one answer could be read off each layer of a run at one time."""

    fix: int
    name: str
    when: str
    step: int
    layers: list[int]
    accuracy: list[float]


@dataclass(frozen=True)
class ReadingPicture:
    """One answer."""

    name: str
    chance: float
    lines: list[ReadingLine]


def attention_figure(groups: Groups) -> AttentionFigure | None:
    """The curves of every run that has records of its attention; None if none has."""
    runs = [run for run in groups.runs if run.attention]
    layers = max((len(record.sites) for run in runs for record in run.attention), default=0)
    if not layers:
        return None
    by_layer = len(MEASURES) + any(is_scored(run) for run in runs)
    columns, numbers = by_layer + 1, by_layer * layers + 1  # and the position share; of each a bucket has two points
    buckets = max(10, min(BUCKETS, NUMBERS // (2 * columns * numbers * len(runs))))
    steps = SharedSteps()
    curves = [_attention_curves(groups, run, layers, buckets, steps) for run in runs]
    return AttentionFigure(layers, steps.lists, curves)


def _attention_curves(groups: Groups, run: ReportRun, layers: int, buckets: int, steps: SharedSteps) -> AttentionCurves:
    by_layer = {measure: _layers(run.attention, measure, layers) for measure in MEASURES}
    share = np.array([record.position_share.of_logits if record.position_share else np.nan for record in run.attention])
    prefix = _best_heads(run.attention, layers)
    scored = [_highest(prefix)] if is_scored(run) else []
    chosen = thin([*(_mean_of_layers(values) for values in by_layer.values()), *scored, share], buckets=buckets)
    entropy, ratio = ([[rounded(value, 4) for value in layer[chosen]] for layer in by_layer[measure]] for measure in MEASURES)
    return AttentionCurves(
        fix=groups.fix_of(run).index,
        panel=groups.panel_of(run),
        seed=run.config.seed,
        state=run.state,
        leap=run.moment,
        steps=steps.place([run.attention[i].step for i in chosen]),
        entropy=entropy,
        ratio=ratio,
        share=[rounded(value, 4) for value in share[chosen]] if np.isfinite(share).any() else [],
        prefix=[[rounded(value, 4) for value in layer[chosen]] for layer in prefix] if scored else [],
    )


def is_scored(run: ReportRun) -> bool:
    """Whether a run has induction-head scores."""
    return any("prefix_matching" in site.values for record in run.attention for site in record.sites)


def _best_heads(records: Sequence[ProbeRecord], layers: int) -> Array:
    """The highest prefix matching of each layer, (layer, record); NaN where it was not measured."""
    found = np.full((layers, len(records)), np.nan)
    for i, record in enumerate(records):
        for layer, site in enumerate(record.sites):
            found[layer, i] = max((v for v in site.values.get("prefix_matching", []) if np.isfinite(v)), default=np.nan)
    return found


def _highest(values: Array) -> Array:
    """Of all layers; NaN where none was measured."""
    highest: Array = np.where(np.isfinite(values), values, -np.inf).max(axis=0)
    return np.where(np.isfinite(highest), highest, np.nan)


def _layers(records: Sequence[ProbeRecord], measure: str, layers: int) -> Array:
    """Means over heads, (layer, record); NaN where it was not measured, or where the model has fewer layers."""
    found = np.full((layers, len(records)), np.nan)
    for i, record in enumerate(records):
        for layer, site in enumerate(record.sites):
            mean = site.mean(measure)
            found[layer, i] = np.nan if mean is None else mean
    return found


def _mean_of_layers(values: Array) -> Array:
    known = np.isfinite(values)
    total, n = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    means: Array = np.divide(total, n, out=np.full(len(n), np.nan), where=n > 0)
    return means


def attention_maps(groups: Groups) -> list[AttentionMaps]:
    """The maps of every run that has some, by fix, panel and seed; if they are too many, of the first seeds of each."""
    files = {i: files for i, run in enumerate(groups.runs) if run.drawn and (files := run.folder.maps())}
    if not files:
        return []
    shapes = {i: _load(next(iter(those.values()))).shape for i, those in files.items()}
    largest = max(int(np.prod(shape)) for shape in shapes.values())
    most = max(1, MAP_BYTES // (FRAMES * largest))
    chosen = sorted(first_seeds(groups, list(files))[:most], key=lambda i: _place(groups, i))
    frames = max(2, MAP_BYTES // (largest * len(chosen)))
    return [_maps(groups, groups.runs[i], files[i], shapes[i], frames) for i in chosen]


def maps_left_out(groups: Groups, shown: Sequence[AttentionMaps]) -> int:
    """How many runs have maps that are not shown."""
    return sum(bool(run.folder.maps()) for run in groups.runs) - len(shown)


def first_seeds(groups: Groups, found: Sequence[int]) -> list[int]:
    """The runs in rounds: the first of each fix and panel, then the second of each, and so on."""
    rank: dict[tuple[int, int], int] = {}
    order: list[tuple[int, int, int, int]] = []
    for i in sorted(found, key=lambda i: _place(groups, i)):
        fix, panel, _ = _place(groups, i)
        rank[fix, panel] = rank.get((fix, panel), -1) + 1
        order.append((rank[fix, panel], panel, fix, i))
    return [i for *_, i in sorted(order)]


def _place(groups: Groups, i: int) -> tuple[int, int, int]:
    run = groups.runs[i]
    return groups.fix_of(run).index, groups.panel_of(run), run.config.seed


def _maps(groups: Groups, run: ReportRun, files: dict[int, Path], shape: tuple[int, ...], frames: int) -> AttentionMaps:
    steps = _spaced(list(files), frames)
    weights = np.abs(np.stack([_load(files[step], shape) for step in steps]).astype(np.float32))
    top = float(weights.max()) or 1.0
    coded = np.rint(255 * np.sqrt(weights / top)).astype(np.uint8)
    layers, heads, queries, keys = shape
    return AttentionMaps(
        name=groups.name_of(run),
        steps=steps,
        leap=run.moment,
        layers=layers,
        heads=heads,
        queries=queries,
        keys=keys,
        tokens=_names(run.task.tokens or [], keys),
        top=top,
        data=base64.b64encode(coded.tobytes()).decode(),
    )


def _spaced(steps: list[int], most: int) -> list[int]:
    """At most this many of them, evenly spaced, with the first and the last.

    >>> _spaced([0, 10, 20, 30, 40], 3), _spaced([0, 10], 3)
    ([0, 20, 40], [0, 10])
    """
    if len(steps) <= most:
        return steps
    return [steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)]


def _load(path: Path, shape: tuple[int, ...] | None = None) -> Array:
    try:
        weights: Array = np.load(path, allow_pickle=False)
        whole = weights.ndim == 4 and weights.dtype.kind == "f" and weights.size > 0
    except Exception:  # NumPy parses the header as Python does: a damaged one raises almost anything
        whole = False
    if not whole or (shape is not None and weights.shape != shape):
        raise DamagedRunError(f"{path} does not hold the attention weights of this run; delete it and make the page again.")
    return np.nan_to_num(weights, nan=0.0, posinf=0.0, neginf=0.0)


def _names(tokens: Sequence[str], keys: int) -> list[str]:
    """The names of the keys: the model may have put a class token before those of the task."""
    if len(tokens) == keys:
        return list(tokens)
    return ["class token", *tokens] if tokens and len(tokens) + 1 == keys else []


def reading_pictures(groups: Groups) -> list[ReadingPicture]:
    """A picture for each answer, in it a line for each run, before and after its Eureka-moment."""
    pictures: dict[str, ReadingPicture] = {}
    for run in groups.runs:
        for when, readings in run.probes.linear.items():
            for answer, probes in _by_answer(readings.found).items():
                picture = pictures.setdefault(answer, ReadingPicture(answer, probes[0].chance, []))
                best = _best_by_layer(probes)
                place = groups.fix_of(run).index, groups.name_of(run), when, readings.step
                picture.lines.append(ReadingLine(*place, [layer + 1 for layer in best], list(best.values())))
    return list(pictures.values())


def _by_answer(found: Sequence[LinearProbe]) -> dict[str, list[LinearProbe]]:
    """The probes of whole blocks for each answer, or of heads where there are none of blocks."""
    answers: dict[str, list[LinearProbe]] = {}
    for probe in found:
        if np.isfinite(probe.accuracy):
            answers.setdefault(probe.answer, []).append(probe)
    return {answer: [one for one in all_ if one.representation == "block"] or all_ for answer, all_ in answers.items()}


def _best_by_layer(probes: Sequence[LinearProbe]) -> dict[int, float]:
    """The highest accuracy of each layer."""
    layers = sorted({probe.layer for probe in probes})
    return {layer: max(probe.accuracy for probe in probes if probe.layer == layer) for layer in layers}
