"""Draw findings: in the terminal as Braille dots, or as a picture (PNG, matplotlib)."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eureka.curves.finding import Finding
from eureka.curves.grid import Array, clean
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.errors import MissingExtraError, RequestError
from eureka.files import check_folder
from eureka.thinning import thin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE, PLATEAU = "#1f4e79", "#dfe7ef"
DROPS = {"eureka": "#c0392b", "lr_step": "#b7791f", "recovery": "#7f8c8d", "epoch_boundary": "#6b46c1", "leak": "#2c7a7b"}
DRAWN = 4000
"""Points that are drawn of a long curve in a picture."""
WIDTH, HEIGHT, DPI = 960, 360, 100
"""Pixels of one panel of the PNG."""
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a Braille character: four rows of two."""
MARKS = {"eureka": "▼", "lr_step": "▽", "recovery": "↩", "epoch_boundary": "┊", "leak": "!"}


def check_plot(path: Path) -> None:
    """Raise if no plot can be written to `path`, so that a wrong name is found before the work and not after it."""
    if path.suffix.lower() != ".png":
        raise RequestError(f"--plot {path}: the name must end in .html or .png.")
    check_folder(path)
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot")


def drawn_points(finding: Finding) -> tuple[Array, Array]:
    """The lowest and the highest point of every stretch: a line through them looks like one through all points."""
    x, y = clean(finding.curve.values, finding.curve.steps)
    chosen = thin([y], buckets=DRAWN // 2)
    return x[chosen], y[chosen]


def write_plot(findings: Sequence[Finding], path: Path) -> None:
    """Write a picture with one panel for each finding."""
    check_plot(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / DPI, HEIGHT * len(findings) / DPI), dpi=DPI, layout="constrained")
    for axes, finding in zip(figure.subplots(len(findings), squeeze=False)[:, 0], findings, strict=True):
        _draw_panel(axes, finding)
    figure.savefig(path)


def _draw_panel(axes: Axes, finding: Finding) -> None:
    curve = finding.curve
    for plateau in finding.plateaus:
        axes.axvspan(plateau.start, plateau.end, color=PLATEAU, linewidth=0)
    for moment in finding.moments:
        colour = DROPS[moment.kind]
        axes.axvspan(moment.onset, moment.end, color=colour, alpha=0.2, linewidth=0)
        axes.axvline(moment.steepest, color=colour, linewidth=1.0)
        note = f" {moment.kind} {moment.confidence:.2f}"
        axes.text(moment.steepest, 1.0, note, color=colour, va="top", transform=axes.get_xaxis_transform(), fontsize="small")
    axes.plot(*drawn_points(finding), color=CURVE, linewidth=0.8)
    axes.margins(x=0.0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(f"{Path(finding.title).name}: {finding.verdict()}", fontsize="medium", loc="left", parse_math=False)
    axes.set_xlabel(curve.step_name, parse_math=False)
    axes.set_ylabel(curve.metric, parse_math=False)


def terminal_plot(
    values: Array,
    steps: Array,
    moments: Sequence[EurekaMoment] = (),
    plateaus: Sequence[Plateau] = (),
    *,
    columns: int = 64,
    rows: int = 8,
) -> list[str]:
    """Lines of text: the curve, then a line with ``═`` under plateaus, ``╲`` under drops and ``▼`` where they are steepest.

    >>> for line in terminal_plot(np.array([2.0] * 50 + [0.0] * 50), np.arange(100.0), columns=10, rows=2): print(line)
    2 ⠉⠉⠉⠉⠉⡇    │
    0      ⣇⣀⣀⣀⣀│
      0       99
    """
    x, y = clean(values, steps)
    top, bottom = f"{y.max():.4g}", f"{y.min():.4g}"
    margin = max(len(top), len(bottom)) + 1
    body = ["".join(line) + "│" for line in _braille(x, y, columns, rows)]
    labels = [top if i == 0 else bottom if i == rows - 1 else "" for i in range(rows)]
    lines = [f"{label:>{margin - 1}} {line}" for label, line in zip(labels, body, strict=True)]
    marks = _marks(float(x[0]), float(x[-1]), moments, plateaus, columns)
    if marks.strip():
        lines.append(" " * margin + marks)
    first, last = f"{x[0]:g}", f"{x[-1]:g}"
    return [*lines, " " * margin + first + last.rjust(columns - len(first))]


def _braille(x: Array, y: Array, columns: int, rows: int) -> list[list[str]]:
    """The curve as characters: every column of dots shows the range of its values, joined to its neighbour."""
    wide, high = 2 * columns, 4 * rows
    span, reach = max(float(x[-1] - x[0]), 1e-300), max(float(np.ptp(y)), 1e-300)
    cell = np.minimum(((x - x[0]) / span * wide).astype(int), wide - 1)
    level = np.minimum(((y.max() - y) / reach * high).astype(int), high - 1)
    least, most = np.full(wide, high), np.full(wide, -1)
    np.minimum.at(least, cell, level)
    np.maximum.at(most, cell, level)
    bits = np.zeros((rows, columns), dtype=int)
    before = -1
    for i in np.flatnonzero(most >= 0):
        a, b = int(least[i]), int(most[i])
        if before >= 0:
            a, b = min(a, before), max(b, before)
        for j in range(a, b + 1):
            bits[j // 4, i // 2] |= DOTS[j % 4][i % 2]
        before = int(level[np.searchsorted(cell, i, side="right") - 1])
    return [[chr(0x2800 + int(b)) if b else " " for b in row] for row in bits]


def _marks(start: float, stop: float, moments: Sequence[EurekaMoment], plateaus: Sequence[Plateau], columns: int) -> str:
    line = [" "] * columns

    def fill(a: float, b: float, mark: str) -> None:
        low, high = (int(np.clip((at - start) / max(stop - start, 1e-300) * columns, 0, columns - 1)) for at in (a, b))
        line[low : high + 1] = mark * (high - low + 1)

    for plateau in plateaus:
        fill(plateau.start, plateau.end, "═")
    for moment in moments:
        fill(moment.onset, moment.end, "╲")
    for moment in moments:
        fill(moment.steepest, moment.steepest, MARKS[moment.kind])
    return "".join(line)
