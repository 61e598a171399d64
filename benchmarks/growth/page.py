"""The measurements as a page of Markdown."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from benchmarks.growth.floors import Floor
from benchmarks.growth.planted import LINES
from benchmarks.growth.series import Series
from benchmarks.growth.sides import Sides
from benchmarks.tasks import SamplingSpeed
from benchmarks.training import LoopCost
from eureka.formats import duration
from eureka.recipes import RECIPES

RUNS = 10_000
PAPER = "paper/main"
LINE_BYTES = 160
"""Of a line of metrics.jsonl, rounded up."""
LEAST_MEGABYTES = 5.0
"""Below it, what a series adds to the peak of its process is no measure of what it needs."""
CHECKPOINTS = 3
"""Kept of a run at most: the two newest, and the one before the leap."""


@dataclass(frozen=True)
class Growth:
    """Everything that the page shows."""

    sides: list[Sides]
    floors: list[Floor]
    training: list[LoopCost]
    sampling: list[SamplingSpeed]
    series: list[Series]


def page(found: Growth) -> str:
    """The whole page."""
    parts = [
        "# What things cost, and how that grows",
        "",
        f"Written by `python -m benchmarks.growth --page docs/performance.md` with torch {version('torch')} on "
        f"{platform.machine()}, one thread. Times are processor seconds, but for pools, first steps and planning, which are by "
        "the clock on the wall. They are of one machine; ratios and exponents carry over.",
        "",
        "## Before and after",
        "",
        "Both sides were measured in one run: the old way is still there to be called.",
        "",
        *_table(["what", "unit", "before", "after", "before ÷ after"], map(_side, found.sides)),
        "",
        "## Attention beside SDPA: what is left to gain",
        "",
        "NormSoftmax forward and backward, relative to PyTorch's fused attention (SDPA, 1 is equal), 4 heads"
        " of 64 dimensions in batches of "
        "4,096 tokens: the median of five processes, and their range, because each gets other pages of memory. *Fused, at least* "
        "is SDPA and the products that the statistics need at the rate of a large matrix product, and nothing else. *Written "
        "out, at least* is the six products of explicit attention at the rate that they reach here, causal ones only where their "
        "blocks of rows see, without a softmax.",
        "",
        *_table(["tokens", "mask", "measured", "fused, at least", "written out, at least"], map(_floor, found.floors)),
        "",
        "## Training and pictures: what is left to gain",
        "",
        "The share of the machine's matrix-multiply rate (of a large product) that a step of our loop reaches, logs and "
        "validation included, and what it would be if only some of the step took time: its matrix products, of these very "
        "shapes; these and its other passes over memory at the rate of a copy; "
        "these and its other operations, each as fast as it is alone.",
        "",
        *_table(
            ["recipe", "measured", "products alone", "and passes at the rate of a copy", "and each operation as fast as alone"],
            map(_training, found.training),
        ),
        "",
        *(_sampling(speed) for speed in found.sampling),
        "",
        "## How cost grows",
        "",
        "The exponent is the slope of log(cost) over log(size) at the three largest sizes.",
        "",
        *_table(["what", "over", "sizes", "seconds", "MB", "exponent of time", "of memory"], map(_series, found.series)),
        "",
        f"## On paper: {RUNS:,} runs on GPUs under Ray",
        "",
        *_on_paper(found.series),
        "",
    ]
    return "\n".join(parts)


def _side(one: Sides) -> list[str]:
    return [one.what, one.unit, _figure(one.before), _figure(one.after), f"{one.before / one.after:.3g}"]


def _floor(one: Floor) -> list[str]:
    measured = f"{one.measured:.2f} ({one.lowest:.2f} to {one.highest:.2f})"
    return [str(one.tokens), one.mask, measured, f"{one.fused_least:.2f}", f"{one.explicit_least:.2f}"]


def _training(one: LoopCost) -> list[str]:
    shares = (one.share_of_matmul_rate, one.at_most.products, one.at_most.and_passes, one.at_most.and_operations)
    return [one.recipe, *(f"{share:.2f}" for share in shares)]


def _sampling(one: SamplingSpeed) -> str:
    return (
        f"Samples of the task {one.task} are made {one.vs_per_sample} × as fast as one at a time. It would be "
        f"{one.passes_at_copy_rate} × if every byte that a batch reads and writes moved at the rate of a copy and nothing else "
        f"took time, and {one.drawn_fetched_painted} × if its scenes were only drawn, their pictures fetched from memory and "
        "multiplied with their colours."
    )


def _series(one: Series) -> list[str]:
    told = all((point.megabytes or 0.0) >= LEAST_MEGABYTES for point in one.points[-3:])
    memory = one.memory_exponent if told else None
    products = one.what == "its matrix products"
    return [
        one.what,
        one.over,
        f"{one.points[0].size:,} to {one.points[-1].size:,}",
        "–" if products else " ".join(_figure(point.cost) for point in one.points),
        " ".join("–" if point.megabytes is None else f"{point.megabytes:.0f}" for point in one.points)
        if any(point.megabytes is not None for point in one.points)
        else "–",
        f"{one.time_exponent:.2f}",
        "–" if memory is None else f"{memory:.2f}",
    ]


def _on_paper(series: Sequence[Series]) -> list[str]:
    """What a large study needs, from the series above."""
    by_name = {(one.what, one.over): one for one in series}
    parameters = RECIPES[PAPER].parameters
    checkpoint = 12 * parameters / 1e6
    report, going_on = by_name["a report", "runs"], by_name["go on with it", "runs"]
    planning = by_name["plan a study", "runs"]
    return [
        f"- **Checkpoints**: {PAPER} has {parameters:,} parameters; weights and the two moments of AdamW are {checkpoint:.0f} MB,"
        f" and a run keeps at most {CHECKPOINTS} checkpoints: {CHECKPOINTS * checkpoint * RUNS / 1e6:.1f} TB on the shared"
        " filesystem unless they are deleted when a run has ended.",
        f"- **Metrics**: {LINES} lines of at most {LINE_BYTES} bytes a run: {LINES * LINE_BYTES * RUNS / 1e6:.0f} MB.",
        f"- **Files**: about 12 a run, {12 * RUNS:,} in all; planning makes {2 * RUNS:,} of them and takes "
        f"{duration(planning.cost_at(RUNS))} of processor time.",
        f"- **Going on** after an interruption takes the driver {duration(going_on.cost_at(RUNS))}, the report "
        f"{duration(report.cost_at(RUNS))}.",
        "- **Driver**: one call of Ray a run and one look at the runs at work every half second; an actor a core or GPU imports "
        "torch once.",
    ]


def _figure(value: float) -> str:
    return f"{value:.3g}"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}", *(f"| {' | '.join(row)} |" for row in rows)]
