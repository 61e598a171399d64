"""Which rows and columns of a table are one curve: columns by name, rows by run and by split (train, validation)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import (
    FINAL,
    METRIC,
    RUN,
    SPLIT,
    VALUE,
    is_aside,
    is_like,
    is_metric,
    rank,
    run_and_metric,
    words,
)
from eureka.curves.readers.counters import Indexes, shape_of
from eureka.curves.readers.table import Table
from eureka.errors import RequestError
from eureka.formats import plural

FEW = 0.25
"""A column of numbers tells runs apart if it has at most this many different values a row."""


@dataclass(frozen=True)
class Part:
    """Some rows of one column: a curve before its steps are known."""

    column: str
    title: str
    """What it is: the name of the column, without the run that a W&B export puts in front and with the split of its rows."""
    run: str | None
    rows: Indexes
    """The rows of its run and split."""


def find_parts(table: Table, column: str | None = None) -> list[Part]:
    """Every column that is judged (or the given one), for each run and split of the table."""
    _refuse_results(table)
    found = []
    for run, label, rows in _groups(table):
        names = [column] if column is not None else judged(table)
        for name in names:
            inside, metric = run_and_metric(name)
            unnamed = is_like(name, VALUE) or not table.has_header
            title = metric if not label else label if unnamed and len(names) == 1 else f"{label} {metric}"
            found.append(Part(name, title, " ".join(one for one in (run, inside) if one) or None, rows))
    named = [part for part in found if is_metric(part.title)]
    return named if named and _telling(table, METRIC) else found


def judged(table: Table) -> list[str]:
    """The columns that are judged: all losses and metrics by name; where none is named like one, all that are nothing else."""
    if not table.has_header:
        return (
            list(table.numeric) if len(table.numeric) == 1 else [name for name in table.numeric if not _only_rises(table, name)]
        )
    names = [name for name in table.numeric if rank(name) is None and not is_like(name, RUN)]
    metrics = [name for name in names if is_metric(run_and_metric(name)[1])]
    plain = [name for name in names if not is_aside(run_and_metric(name)[1])]
    values = [name for name in plain if is_like(name, VALUE)]
    return metrics or values or [name for name in plain if not _only_rises(table, name)]


def _only_rises(table: Table, name: str) -> bool:
    """Whether a column counts, tells the time or is constant: it never falls."""
    column = table.columns[name]
    return shape_of(column[np.isfinite(column)]).shape in ("rises", "constant", "absent")


def _groups(table: Table) -> Iterator[tuple[str, str, Indexes]]:
    """Run, split and rows of each group of rows."""
    runs, splits = _telling(table, RUN), [*_telling(table, SPLIT), *_telling(table, METRIC)]
    if not table.has_header:
        runs, splits = [], list(table.labels)
    for run, rows in _apart(table, runs, np.arange(table.rows)):
        for label, inner in _apart(table, splits, rows):
            yield run, label, inner


def _telling(table: Table, pattern: str) -> list[str]:
    """The columns with a name of this kind that tell rows apart."""
    return [name for name in table.columns if is_like(name, pattern) and not is_metric(name) and _tells(table, name, pattern)]


def _tells(table: Table, name: str, pattern: str) -> bool:
    column = table.columns[name]
    several = len(np.unique(column[np.isfinite(column)]))
    if name in table.labels:
        return 1 < several < table.rows or (several == 1 and pattern == METRIC)
    return pattern == RUN and 1 < several <= FEW * table.rows


def _apart(table: Table, names: list[str], rows: Indexes) -> Iterator[tuple[str, Indexes]]:
    """The rows by the values of the columns, in the order in which these first appear; rows without a value are left out."""
    if not names:
        yield "", rows
        return
    keys = np.stack([table.columns[name][rows] for name in names], axis=1)
    there = np.isfinite(keys).all(axis=1)
    rows, keys = rows[there], keys[there]
    _, first, which = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    for group in np.argsort(first):
        inner = rows[which.ravel() == group]
        yield " ".join(_text(table, name, int(inner[0])) for name in names), inner


def _text(table: Table, name: str, row: int) -> str:
    value = float(table.columns[name][row])
    return table.labels[name][int(value)] if name in table.labels else f"{name} {value:g}"


def _refuse_results(table: Table) -> None:
    """A table of results has another name or seed in each row, or a final figure, and no counter that rises."""
    if table.rows < 2 or not table.has_header:
        return
    counters = [name for name in table.numeric if rank(name) is not None and not is_like(name, RUN)]
    differ = [name for name in table.columns if is_like(name, RUN) and _all_differ(table.columns[name])]
    texts = [name for name in differ if name in table.labels]
    final = [name for name in table.numeric if set(words(name)) & FINAL]
    if texts or not (final or differ) or any(_counts(table.columns[name]) for name in counters):
        if not texts:
            return
        what = f"{texts[0]!r} differs in each"
    else:
        what = f"{differ[0]!r} differs in each" if differ else f"it has {final[0]!r} and nothing that counts steps"
    raise RequestError(
        f"this looks like a table of results with one row a run ({plural(table.rows, 'row')}; {what}), not like a curve;"
        " give the log or the exported history of a run."
    )


def _all_differ(column: Array) -> bool:
    there = column[np.isfinite(column)]
    return 1 < len(there) == len(np.unique(there)) and len(there) >= 0.9 * len(column)


def _counts(column: Array) -> bool:
    return shape_of(column[np.isfinite(column)]).shape in ("rises", "restarts", "resumed", "reversed", "unsorted")
