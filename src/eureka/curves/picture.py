"""A small picture of a curve for the terminal, in Braille dots, with plateaus and drops marked below it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eureka.curves.grid import Array, clean
from eureka.curves.moment import EurekaMoment, Plateau

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a Braille character: four rows of two."""
MARKS = {"eureka": "▼", "lr_step": "▽", "recovery": "↩"}


def picture(
    values: Array,
    steps: Array,
    moments: Sequence[EurekaMoment] = (),
    plateaus: Sequence[Plateau] = (),
    *,
    columns: int = 64,
    rows: int = 8,
) -> list[str]:
    """Lines of text: the curve, then a line with ``═`` under plateaus, ``╲`` under drops and ``▼`` where they are steepest.

    >>> for line in picture(np.array([2.0] * 50 + [0.0] * 50), np.arange(100.0), columns=10, rows=2): print(line)
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
    """Every dot column shows the range of the values that fall into it, joined to its neighbour."""
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
