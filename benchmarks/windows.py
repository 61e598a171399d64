"""At which learning rates does each arm leap? ``python -m benchmarks.windows`` draws it for the studies of results/every_rate.

A panel for each study, in it a line for each arm and a column for each rate: in how many runs it left the plateau, and the median
step. The picture keeps the digest of the tables that it was drawn from, so that a test can tell whether it is up to date. Where a
README says ``<!-- python -m benchmarks.windows NAME -->``, the table of that name is written too: the same runs, over all rates.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks.command import start
from benchmarks.committed import RESULTS, STUDIES, committed_runs
from eureka.files import write_whole
from eureka.formats import rate
from eureka.study.arms import Arm, Cell, group_runs
from eureka.study.comparison import Comparison, compare_arms
from eureka.study.plan import read_plan

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
"""The arms of the tables in the README of the project, the baseline first."""
FIXES = {
    "softmax": "softmax",
    "temperature": "a temperature",
    "heat_treatment": "Heat Treatment",
    "norm_softmax": "NormSoftmax",
    "norm_softmax_var": "NormSoftmax by variance",
    "qk_norm": "QK-norm",
}
"""The fixes of the table of fixes, and what it calls them."""
README = RESULTS.parent / "README.md"
READMES = (README, PICTURE.parent / "README.md")
"""Where the tables are written."""
MARK = re.compile(r"(<!-- python -m benchmarks\.windows (\w+) -->\n)(?:\|.*\n)*")
"""The line above a table, which names it, and the table."""
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
OTHERS = {
    "every_rate/resnet": "a ResNet-9 on the paper's pictures",
    "every_rate/to_the_end": "noisy tiles without the early stop",
    "every_rate/new_seeds/main": "the paper's pictures, new seeds",
    "every_rate/new_seeds/moving": "the paper's pictures at moving places, new seeds",
}
"""The studies that have no panel, and what the tables call them."""
DRAWN = tuple(TITLES)
SEEDED = (*DRAWN[:5], "every_rate/chains")
"""Those with five seeds or more of every arm of `TOLD`: the studies of the tables in the README of the project."""
NEW_SEEDS = ("every_rate/new_seeds/main", "every_rate/new_seeds/moving")
"""Those that ask again what others left open, at seeds that were not looked at before."""
WHOLE = {
    "every_rate/tiles": "tiles",
    "every_rate/digits": "digits",
    "every_rate/main": "pictures",
    "every_rate/moving": "moving places",
}
"""The studies of the table of fixes, which have all of them, and what it calls them."""
COLUMNS, WIDTH, HEIGHT, DPI = 2, 5.8, 2.1, 110
"""Panels beside each other, and their size in inches."""
MOST_RATES = 5
"""Columns of a panel; one with fewer rates leaves the rest empty, so that cells have one size."""
EMPTY, FULL, FAINT = "#f3f5f7", "#016fc0", "#9aa4ae"


@dataclass(frozen=True)
class Window:
    """What one study says: cells by arm and learning rate, None where nothing was run."""

    title: str
    rates: list[float]
    lines: dict[str, list[Cell | None]]


def window(name: str) -> Window:
    """The window of a committed study."""
    arms = {arm.label: arm for arm in _arms(name) if arm.ended}
    rates = sorted({lr for label in ARMS if label in arms for lr in arms[label].ended})
    lines = {label: [arms[label].cells.get(lr) if label in arms else None for lr in rates] for label in ARMS}
    return Window((TITLES | OTHERS)[name], rates, lines)


def _arms(name: str) -> Sequence[Arm]:
    (condition,) = group_runs(committed_runs(name)).conditions
    return condition.arms


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
            else:
                axes.text(x + 0.5, y + 0.52, "not run", ha="center", va="center", fontsize=7, color=FAINT)


def told(cell: Cell) -> str:
    """``10/10 · 175``: the runs that leapt, and the median step where more than half did."""
    median = cell.median_eureka_step
    return f"{cell.leaps}/{len(cell.ended)}" + ("" if median is None else f" · {median:,.0f}")


def of_starts(names: Sequence[str], labels: Sequence[str]) -> str:
    """In how many runs some arms leapt over all rates, as Markdown; a line for each study."""
    return _markdown(["", "rates", *(ARMS[label] for label in labels)], [_line(window(name), labels) for name in names])


def of_verdicts(names: Sequence[str]) -> str:
    """How many times sooner than the default, each at its own best rate, as Markdown; a line for each study."""
    lines = []
    for name in names:
        found = {(one.baseline.label, one.arm.label): one for one in compare_arms(group_runs(committed_runs(name)))}
        compared = [found[TOLD[0], label] for label in TOLD[1:]]
        lines.append([(TITLES | OTHERS)[name], str(compared[0].baseline_runs), *map(_sooner, compared)])
    return _markdown(["", "seeds", *(ARMS[label] for label in TOLD[1:])], lines)


def _sooner(one: Comparison) -> str:
    ratio = one.speed_up
    assert ratio.value is not None
    assert ratio.low is not None
    assert ratio.high is not None
    return f"{ratio.value:.1f} ({ratio.low:.1f} to {ratio.high:.1f}), p = {one.p_corrected:.2g}"


def of_fixes() -> str:
    """In how many runs each fix leapt over all rates, with default weights and from clear positions, as Markdown."""
    cells = {(name, arm.label): list(arm.cells.values()) for name in WHOLE for arm in _arms(name)}
    starts = {"default": "", "clear positions": " (start=clear_positions)"}
    heading = ["", *(f"{title}, {start}" for title in WHOLE.values() for start in starts)]
    return _markdown(
        heading,
        [
            [told, *(_leaps(cells[name, fix + start]) for name in WHOLE for start in starts.values())]
            for fix, told in FIXES.items()
        ],
    )


def of_runs() -> str:
    """How many runs of each study are there, and what they cost, as Markdown."""
    names = [name for name in STUDIES if name.startswith("every_rate/")]
    lines = []
    for name in names:
        planned = len(read_plan(RESULTS / STUDIES[name], Path("unused")).configs)
        ended = [run.outcome for run in committed_runs(name) if run.outcome is not None]
        hours = sum(outcome.seconds for outcome in ended) / 3600
        folder = name.removeprefix("every_rate/")
        lines.append([f"[{(TITLES | OTHERS)[name]}]({folder}/README.md)", f"{len(ended):,}", f"{planned:,}", f"{hours:.1f}"])
    return _markdown(["", "runs", "planned", "hours of one core"], lines)


def _markdown(heading: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in (heading, ["---"] * len(heading), *lines))


def _line(one: Window, labels: Sequence[str]) -> list[str]:
    rates = rate(one.rates[0]) + (f" to {rate(one.rates[-1])}" if len(one.rates) > 1 else "")
    return [one.title, rates, *(_leaps([cell for cell in one.lines[label] if cell is not None]) for label in labels)]


def _leaps(cells: Sequence[Cell]) -> str:
    return f"{sum(cell.leaps for cell in cells)} of {sum(len(cell.ended) for cell in cells)}" if cells else "not run"


TABLES: dict[str, Callable[[], str]] = {
    "claim": lambda: of_starts(SEEDED, TOLD),
    "starts": lambda: of_starts(DRAWN, tuple(ARMS)),
    "sooner": lambda: of_verdicts(SEEDED),
    "again": lambda: of_starts(NEW_SEEDS, TOLD),
    "sooner_again": lambda: of_verdicts(NEW_SEEDS),
    "fixes": of_fixes,
    "runs": of_runs,
}


def filled(text: str) -> str:
    """A README with its tables as they would be written now."""
    return MARK.sub(lambda found: found[1] + TABLES[found[2]](), text)


def main(
    out: Annotated[Path, typer.Option("--out", metavar="PNG", help="Where to write it.")] = PICTURE,
) -> None:
    """Draw at which learning rates each arm leaps, from the committed tables of runs, and write the tables of the READMEs."""
    draw(DRAWN, out)
    for readme in READMES:
        write_whole(readme, filled(readme.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    start(main)
