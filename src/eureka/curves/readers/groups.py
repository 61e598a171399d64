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
    SETTINGS,
    SPLIT,
    VALUE,
    is_aside,
    is_like,
    is_metric,
    is_rate,
    rank,
    run_and_metric,
    tells,
    words,
)
from eureka.curves.readers.counters import Indexes, shape_of
from eureka.curves.readers.table import Table
from eureka.errors import RequestError
from eureka.formats import plural

FEW = 0.25
"""A column of numbers tells runs apart if it has at most this many different values a row."""

SHARED = 0.3
"""Rows that have all counters in common with another: something must tell them apart."""


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
    found, pivoted = [], False
    for run, label, rows in _groups(table):
        names = [column] if column is not None else judged(table)
        for name in names:
            inside, metric = run_and_metric(name)
            unnamed = len(names) == 1 and (is_like(name, VALUE) or not table.has_header)
            pivoted = pivoted or (unnamed and table.has_header and bool(label))
            title = metric if not label else label if unnamed else f"{label} {metric}"
            found.append(Part(name, title, " ".join(one for one in (run, inside) if one) or None, rows))
    named = [part for part in found if is_metric(part.title)]
    return named if named and pivoted else found


def judged(table: Table) -> list[str]:
    """The columns that are judged: all losses and metrics by name; where none is named like one, all that are nothing else."""
    if not table.has_header and len(table.numeric) == 1:
        return list(table.numeric)
    if not table.has_header:
        return [name for name in table.numeric if not _only_rises(table, name) and not _restarts(table.columns[name])]
    every = [name for name in table.numeric if rank(name) is None and not is_like(name, RUN)]
    names = [name for name in every if np.isfinite(table.columns[name]).any()] or every
    metrics = [name for name in names if is_metric(run_and_metric(name)[1])]
    plain = [name for name in names if not is_aside(run_and_metric(name)[1])]
    values = [name for name in plain if is_like(name, VALUE)]
    return metrics or values or [name for name in plain if not _only_rises(table, name)]


def _only_rises(table: Table, name: str) -> bool:
    """Whether a column counts, tells the time or is constant: it never falls."""
    column = table.columns[name]
    return shape_of(column[np.isfinite(column)]).shape in ("rises", "constant", "absent")


def _restarts(column: Array) -> bool:
    """Whether a column of whole numbers counts again and again, as batches do."""
    there = column[np.isfinite(column)]
    return bool(np.all(there == np.round(there))) and shape_of(there).shape == "restarts"


def _groups(table: Table) -> Iterator[tuple[str, str, Indexes]]:
    """Run, split and rows of each group of rows."""
    runs, splits = _telling(table, RUN), [*_telling(table, SPLIT), *_telling(table, METRIC)]
    runs = [name for name in runs if name not in splits]
    if "name" in runs and "name" in table.labels and all(is_like(name, VALUE) for name in judged(table)):
        runs, splits = [name for name in runs if name != "name"], [*splits, "name"]  # of the metric
    if not table.has_header:
        runs, splits = [], list(table.labels)
    splits += _needed(table, [*runs, *splits])
    for run, rows in _apart(table, runs, np.arange(table.rows)):
        for label, inner in _apart(table, splits, rows):
            yield run, label, inner


def _needed(table: Table, known: list[str]) -> list[str]:
    """A column of text without a known name, if rows share their steps and it tells them apart."""
    counters = [name for name in table.numeric if rank(name) is not None]
    others = [name for name in table.labels if name not in known and not tells(name) and np.isfinite(table.columns[name]).all()]
    if not counters or not others:
        return []
    columns = [table.columns[name] for name in (*counters, *known)]
    shared = _shared(columns)
    return [name for name in others if shared > SHARED and _shared([*columns, table.columns[name]]) < 0.1 * shared][:1]


def _shared(columns: list[Array]) -> float:
    """The share of rows that have the same values in all columns as another row before."""
    rows = np.stack(columns, axis=1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    return 1.0 - len(np.unique(rows, axis=0)) / len(rows) if len(rows) else 0.0


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
    """A table of results has another name or seed in each row, a final figure or a setting, and no counter that rises."""
    if table.rows < 2 or not table.has_header:
        return
    counters = [name for name in table.numeric if rank(name) is not None and not is_like(name, RUN)]
    if any(_counts(table.columns[name]) for name in counters):
        return
    differ = [f"{name!r} differs in each" for name in table.columns if is_like(name, RUN) and _all_differ(table.columns[name])]
    final = [name for name in table.columns if set(words(name)) & FINAL or set(words(name)[:1]) & SETTINGS]
    rates = [name for name in table.numeric if is_rate(name) and _jumps(table.columns[name])]
    why = [*differ, *(f"it has {name!r} and nothing that counts steps" for name in (*final, *rates))]
    if why:
        raise RequestError(
            f"this looks like a table of results with one row a run ({plural(table.rows, 'row')}; {why[0]}), not like a curve;"
            " give the log or the exported history of a run."
        )


def _jumps(column: Array) -> bool:
    """Whether a rate goes up and down all the time, as no schedule does."""
    change = np.diff(column[np.isfinite(column)])
    return len(change) > 2 and bool(min(np.mean(change > 0), np.mean(change < 0)) > 0.15)


def _all_differ(column: Array) -> bool:
    there = column[np.isfinite(column)]
    return 1 < len(there) == len(np.unique(there)) and len(there) >= 0.9 * len(column)


def _counts(column: Array) -> bool:
    return shape_of(column[np.isfinite(column)]).shape in ("rises", "restarts", "resumed", "reversed")
