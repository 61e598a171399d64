"""Tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from eureka.study import Row

WIDE = 160
"""Columns of a table that goes to a file or another program, where nothing would be gained by wrapping it."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table on standard output; columns of numbers go to the right."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else WIDE
    Console(highlight=False, width=width).print(make_table(columns, list(rows), title))


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(row[index][:1].isdigit() or row[index] in ("", "–") for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: nothing in a name is taken for markup
    return table


def print_summary(rows: Sequence[Row]) -> None:
    """The table of a study."""
    columns = ["fix", "learning rate", "Eureka-ratio", "95 % interval", "median Eureka-step", "accuracy after"]
    settings = sorted({key for row in rows for key in row.settings})
    print_table([*columns[:2], *settings, *columns[2:]], [_cells(row, settings) for row in rows])


def _cells(row: Row, settings: Sequence[str]) -> list[str]:
    n = len(row.seeds)
    low, high = row.eureka_ratio_interval
    return [
        row.fix,
        f"{row.lr:g}",
        *(str(row.settings.get(key)) for key in settings),
        f"{round(row.eureka_ratio * n)} of {n}",
        f"{low:.2f} – {high:.2f}",
        "–" if row.median_eureka_step is None else f"{row.median_eureka_step:,.0f}",
        "–" if row.median_final_accuracy is None else f"{row.median_final_accuracy:.3f}",
    ]
