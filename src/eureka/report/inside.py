"""Entropy and gradients of attention while the runs trained, as the page's script gets them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from eureka.report.choices import segments
from eureka.report.groups import Groups
from eureka.report.markup import Html, tag
from eureka.report.thinning import BUCKETS, thin
from eureka.runs import Record

MEASURES = {"entropy": "entropy", "ratio": "grad_ratio"}
"""What the script calls each measure of attention.jsonl."""
NUMBERS = 300_000
"""So many numbers may be drawn, about two megabytes; the lines of a larger study are thinned until they fit."""
CAPTION = (
    "Each curve is one run, measured in its own training steps, a mean over heads; a mark is its Eureka-moment. Entropy says how "
    "evenly attention is spread: at 1 every token is looked at alike, at 0 only one. The gradient ratio is what reaches W_Q and "
    "W_K beside what reaches W_V: far below 1, attention itself hardly learns."
)


def inside_figure(data: Record | None) -> Html:
    """Where the script draws, with a choice of layer; nothing if no run has such lines."""
    if data is None:
        return Html("")
    told = "Entropy of attention and gradient ratio of every run over its steps."
    layers = segments("layer", "layer", ["mean of all", *(str(i + 1) for i in range(data["layers"]))])
    controls = [tag("form", layers, class_="controls", autocomplete="off")] if data["layers"] > 1 else []
    return tag(
        "figure",
        tag("h3", "How even attention is, and whether it learns"),
        *controls,
        tag("div", id="inside", role="img", aria_label=told),
        tag("figcaption", CAPTION),
    )


def inside_data(groups: Groups) -> Record | None:
    """A curve of each measure and layer for every run that has lines, means over heads."""
    lines = {i: [_flat(line) for line in run.attention] for i, run in enumerate(groups.runs) if run.attention}
    layers = max((len(line["layers"]["entropy"]) for found in lines.values() for line in found), default=0)
    if not layers:
        return None
    buckets = max(10, min(BUCKETS, NUMBERS // (4 * len(MEASURES) * layers * len(lines))))
    steps: dict[tuple[int, ...], int] = {}
    runs = []
    for i, found in lines.items():
        thinned = thin(found, list(MEASURES), buckets=buckets)
        shared = steps.setdefault(tuple(line["step"] for line in thinned), len(steps))
        place = {"fix": groups.fix_of[i], "panel": groups.panel_of[i], "seed": groups.runs[i].seed, "leap": groups.runs[i].leap}
        runs.append({**place, "state": groups.runs[i].state, "steps": shared, **_curves(thinned, layers)})
    return {"layers": layers, "steps": [list(shared) for shared in steps], "runs": runs}


def _flat(line: Record) -> Record:
    """The mean over heads of each layer, and over all layers, which decides what is drawn."""
    layers = {name: [_mean(site["values"].get(key, [])) for site in line["sites"]] for name, key in MEASURES.items()}
    return {"step": line["step"], "layers": layers, **{name: _mean(values) for name, values in layers.items()}}


def _mean(values: Iterable[Any]) -> float | None:
    known = [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
    return sum(known) / len(known) if known else None


def _curves(lines: Sequence[Record], layers: int) -> Record:
    return {name: [[_layer(line["layers"][name], i) for line in lines] for i in range(layers)] for name in MEASURES}


def _layer(values: Sequence[float | None], layer: int) -> float | None:
    """Four digits are more than a screen shows; a run with fewer layers has gaps."""
    value = values[layer] if layer < len(values) else None
    return None if value is None else float(f"{value:.4g}")
