"""Tables for people."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from eureka.formats import NONE, fixed

if TYPE_CHECKING:
    from rich.table import Table

    from eureka.study.arms import Cell
    from eureka.study.over_rates import OverRates
    from eureka.study.survival import Estimate

WIDE = 160
"""The width of a table that goes to a file or another program, which need no wrapped lines."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    """A table on standard output; columns of numbers go to the right."""
    from rich.console import Console

    table = make_table(columns, list(rows), title)
    if sys.stdout.isatty():
        Console(highlight=False).print(table)
        return
    plain = Console(highlight=False, width=WIDE)
    with plain.capture() as printed:
        plain.print(table)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed.get().splitlines()))


def make_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(rows) and all(row[index].removeprefix("-")[:1].isdigit() or row[index] in ("", NONE) for row in rows)
        table.add_column(column, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*map(Text, row))  # Text: nothing in a name is taken for markup
    return table


def print_cells(cells: Sequence[Cell], *, plateaus: int = 1, losses: bool = False) -> None:
    """The table of a study.

    plateaus   of the task; of several, it says when each was left
    losses     with the loss at the end, where it can be compared
    """
    settings = list(cells[0].settings) if cells else []
    earlier = range(plateaus - 1)
    columns = ["fix", "learning rate", *settings, "Eureka-ratio", "95 % interval", *(f"left level {i + 1}" for i in earlier)]
    columns += ["median Eureka-step", "accuracy after", *(["loss after"] if losses else [])]
    print_table(columns, [_row(cell, earlier, losses) for cell in cells])


def _row(cell: Cell, earlier: range, losses: bool) -> list[str]:
    from eureka.study.losses import median_loss

    low, high = cell.eureka_ratio_interval
    return [
        cell.fix,
        f"{cell.lr:g}",
        *map(str, cell.settings.values()),
        f"{cell.leaps} of {len(cell.ended)}",
        f"{fixed(low, 2)} – {fixed(high, 2)}",
        *(fixed(cell.median_left_step(level), 0) if cell.knows_levels else "" for level in earlier),
        fixed(cell.median_eureka_step, 0),
        fixed(cell.median_final_accuracy),
        *([fixed(median_loss(cell.ended))] if losses else []),
    ]


def print_over_rates(arms: Sequence[OverRates]) -> None:
    """Each arm over all learning rates; nothing where there was one rate."""
    if not arms:
        return
    several = len({one.condition.key for one in arms}) > 1
    columns = ["over all learning rates", *(["condition"] if several else []), "Eureka-ratio", "95 % interval", "mean wait"]
    print_table([*columns, "sooner than the baseline at its best rate"], [_over_rates_row(one, several) for one in arms])


def _over_rates_row(one: OverRates, several: bool) -> list[str]:
    low, high = one.share_interval
    return [
        one.arm.label,
        *([one.condition.label] if several else []),
        f"{one.leaps} of {one.runs}",
        f"{fixed(low, 2)} – {fixed(high, 2)}",
        _estimate(one.mean_wait, 0),
        NONE if one.sooner is None else _estimate(one.sooner, 2),
    ]


def _estimate(one: Estimate, digits: int) -> str:
    interval = "" if one.low is None or one.high is None else f" [{fixed(one.low, digits)}, {fixed(one.high, digits)}]"
    return f"{fixed(one.value, digits)}{interval}"
