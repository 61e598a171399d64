"""The weights of attention over training, small enough to be carried by the page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eureka.errors import DamagedRunError
from eureka.report.choices import dropdown, slider
from eureka.report.groups import Groups
from eureka.report.markup import Html, tag
from eureka.report.reading import ReportRun
from eureka.runs import Record

Array = np.ndarray[Any, Any]

MOST = 12
"""Runs whose maps are shown, at most: the first of each fix and panel."""
BYTES = 1_500_000
"""So large may all maps together be; where they are larger, first runs and then steps are left out."""
FRAMES = 6
"""Steps that a slider should have at least."""
CAPTION = (
    "Whom each token (row) looks at (column) in one validation sample, head by head. The stronger the colour, the more of it. "
    "Colours go by the square root, so that faint attention can be seen, up to the highest weight of the run."
)


def map_figure(groups: Groups, data: Sequence[Record]) -> Html:
    """The choice of a run and of a step, and where the script draws; nothing if no run has maps."""
    if not data:
        return Html("")
    runs = dropdown("map-run", "run", [groups.name_of(one["run"]) for one in data])
    controls = tag("form", runs, slider("map-step", "step", "map-label"), class_="controls", autocomplete="off")
    told = "The weights of attention of every layer and head on one sample, at the chosen step."
    return tag(
        "figure",
        tag("h3", "Whom the tokens look at"),
        controls,
        tag("div", id="maps", role="img", aria_label=told),
        tag("figcaption", CAPTION),
    )


def map_data(groups: Groups) -> list[Record]:
    """The maps of some runs as bytes: 255 √(weight / highest weight)."""
    shapes = {i: _load(next(iter(groups.runs[i].folder.maps().values()))).shape for i in _chosen(groups)}
    largest = max((int(np.prod(shape)) for shape in shapes.values()), default=1)
    chosen = list(shapes)[: max(1, BYTES // (FRAMES * largest))]
    frames = max(2, BYTES // (largest * max(1, len(chosen))))
    return [{"run": i, **_of_run(groups.runs[i], shapes[i], frames)} for i in chosen]


def _chosen(groups: Groups) -> list[int]:
    """The first run of each fix and panel that has maps, those with a Eureka-moment before those without."""
    first: dict[tuple[int, int], int] = {}
    for i, run in enumerate(groups.runs):
        place = groups.panel_of[i], groups.fix_of[i]
        if place not in first and run.folder.maps():
            first[place] = i
    chosen = [first[place] for place in sorted(first)[:MOST]]
    return sorted(chosen, key=lambda i: groups.runs[i].leap is None)


def _of_run(run: ReportRun, shape: tuple[int, ...], frames: int) -> Record:
    maps = run.folder.maps()
    steps = _spaced(list(maps), frames)
    weights = np.abs(np.stack([_load(maps[step], shape) for step in steps]).astype(np.float32))
    top = float(weights.max()) or 1.0
    coded = np.rint(255 * np.sqrt(weights / top)).astype(np.uint8)
    sizes = dict(zip(("layers", "heads", "queries", "keys"), shape, strict=True))
    data = base64.b64encode(coded.tobytes()).decode()
    return {"steps": steps, "leap": run.leap, **sizes, "tokens": _names(run.tokens, shape[-1]), "top": top, "data": data}


def _spaced(steps: list[int], most: int) -> list[int]:
    """So many of them, evenly, the first and the last among them.

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
    except (OSError, ValueError, EOFError):
        whole = False
    if not whole or (shape is not None and weights.shape != shape):
        raise DamagedRunError(f"{path} does not hold the attention weights of this run; delete it and make the page again.")
    return np.nan_to_num(weights, nan=0.0, posinf=0.0, neginf=0.0)


def _names(tokens: Sequence[str], keys: int) -> list[str]:
    """What the keys are called: the model may have put a class token before those of the task."""
    if len(tokens) == keys:
        return list(tokens)
    return ["class token", *tokens] if tokens and len(tokens) + 1 == keys else []
