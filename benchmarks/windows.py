"""At which learning rates does each arm leap? ``python -m benchmarks.windows`` draws it for the studies of results/every_rate.

A panel for each study, in it a line for each arm and a column for each rate: in how many runs it left the plateau, and the median
step. The picture keeps the digest of the tables that it was drawn from, so that a test can tell whether it is up to date. The
README's table has the same runs, over all rates; it is written too.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.command import start
from benchmarks.committed import RESULTS, committed_runs
from eureka.files import write_whole
from eureka.formats import rate
from eureka.study.arms import Cell, group_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = RESULTS / "every_rate" / "windows.png"
ARMS = {
    "softmax": "softmax, default",
    "norm_softmax": "NormSoftmax, default",
    "softmax (start=clear_positions)": "softmax, clear positions",
    "softmax (start=clear)": "softmax, clear start",
    "norm_softmax (start=clear_positions)": "NormSoftmax, clear positions",
}
"""The arms that are drawn, from above, and what the picture calls them."""
TOLD = ("softmax", "softmax (start=clear)", "norm_softmax (start=clear_positions)")
"""The arms of the README's table."""
README = RESULTS.parent / "README.md"
MARK = re.compile(r"(<!-- python -m benchmarks\.windows -->\n)(?:\|.*\n)*")
"""The line above the README's table, and the table."""
TITLES = {
    "every_rate/tiles": "noisy tiles, 17 tokens",
    "every_rate/digits": "real digits",
    "every_rate/main": "the paper's pictures",
    "every_rate/moving": "the paper's pictures at moving places",
    "every_rate/longer": "noisy tiles, 65 tokens",
    "every_rate/longest": "noisy tiles, 257 tokens",
    "every_rate/wider": "noisy tiles, width 256 and depth 6",
    "every_rate/chains": "chains of three decisions",
    "every_rate/eight_tokens": "the paper's pictures in 8 tokens",
    "every_rate/paper_scale": "the paper's own model, 197 tokens",
}
"""The studies of transformers, a panel each, and what the picture calls them."""
DRAWN = tuple(TITLES)
COLUMNS, WIDTH, HEIGHT, DPI = 2, 5.8, 2.1, 110
"""Panels beside each other, and their size in inches."""
MOST_RATES = 5
"""Columns of a panel; one with fewer rates leaves the rest empty, so that cells have one size."""
EMPTY, FULL = "#f3f5f7", "#016fc0"


@dataclass(frozen=True)
class Window:
    """What one study says: cells by arm and learning rate, None where nothing was run."""

    title: str
    rates: list[float]
    lines: dict[str, list[Cell | None]]


def window(name: str) -> Window:
    """The window of a committed study."""
    (condition,) = group_runs(committed_runs(name)).conditions
    arms = {arm.label: arm for arm in condition.arms if arm.ended}
    rates = sorted({lr for label in ARMS if label in arms for lr in arms[label].ended})
    lines = {label: [arms[label].cells.get(lr) if label in arms else None for lr in rates] for label in ARMS}
    return Window(TITLES[name], rates, lines)


def digest(names: Sequence[str]) -> str:
    """Of the tables of some studies."""
    return hashlib.sha256(b"".join((RESULTS / name / "runs.csv").read_bytes() for name in names)).hexdigest()


def draw(names: Sequence[str], path: Path) -> None:
    """Write the picture of some studies."""
    from matplotlib.figure import Figure

    found = [window(name) for name in names]
    rows = math.ceil(len(found) / COLUMNS)
    figure = Figure(figsize=(WIDTH * COLUMNS, HEIGHT * rows), dpi=DPI, layout="constrained")
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False).flat)
    for axes, one in zip(panels, found, strict=False):
        _draw_panel(axes, one)
    for axes in panels[len(found) :]:
        axes.set_axis_off()
    figure.savefig(path, metadata={"Software": None, "Description": digest(names)})


def _draw_panel(axes: Axes, one: Window) -> None:
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    shade = LinearSegmentedColormap.from_list("leaps", [EMPTY, FULL])
    axes.set(xlim=(0, MOST_RATES), ylim=(len(one.lines), 0))
    axes.set_title(one.title, loc="left", fontsize=10, fontweight="bold")
    axes.set_yticks([y + 0.5 for y in range(len(one.lines))], [ARMS[label] for label in one.lines], fontsize=8)
    axes.set_xticks([x + 0.5 for x in range(len(one.rates))], list(map(rate, one.rates)), fontsize=8)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for y, cells in enumerate(one.lines.values()):
        for x, cell in enumerate(cells):
            if cell is not None and cell.ended:
                axes.add_patch(Rectangle((x + 0.02, y + 0.05), 0.96, 0.9, color=shade(cell.eureka_ratio), linewidth=0))
                ink = "white" if cell.eureka_ratio > 0.55 else "#2d3640"
                axes.text(x + 0.5, y + 0.52, told(cell), ha="center", va="center", fontsize=8, color=ink)


def told(cell: Cell) -> str:
    """``10/10 · 175``: the runs that leapt, and the median step where more than half did."""
    median = cell.median_eureka_step
    return f"{cell.leaps}/{len(cell.ended)}" + ("" if median is None else f" · {median:,.0f}")


def table(names: Sequence[str]) -> str:
    """In how many runs the arms of `TOLD` leapt over all rates, as Markdown; a line for each study."""
    heading = ["", "rates", *(ARMS[label] for label in TOLD)]
    lines = [heading, ["---"] * len(heading), *(_line(window(name)) for name in names)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _line(one: Window) -> list[str]:
    rates = rate(one.rates[0]) + (f" to {rate(one.rates[-1])}" if len(one.rates) > 1 else "")
    return [one.title, rates, *(_leaps([cell for cell in one.lines[label] if cell is not None]) for label in TOLD)]


def _leaps(cells: Sequence[Cell]) -> str:
    return f"{sum(cell.leaps for cell in cells)} of {sum(len(cell.ended) for cell in cells)}" if cells else "not run"


def filled(text: str) -> str:
    """The README with its table as it would be written now."""
    return MARK.sub(lambda found: found[1] + table(DRAWN), text)


def main(
    out: Annotated[Path, typer.Option("--out", metavar="PNG", help="Where to write it.")] = PICTURE,
) -> None:
    """Draw at which learning rates each arm leaps, from the committed tables of runs, and write the README's table."""
    draw(DRAWN, out)
    write_whole(README, filled(README.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    start(main)
