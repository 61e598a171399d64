"""The learning rate at each step of a curve: out of its own log, or of a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import ROWS, is_metric, is_rate
from eureka.curves.readers.counters import Indexes
from eureka.curves.readers.folders import open_log
from eureka.curves.readers.groups import find_parts
from eureka.curves.readers.steps import Axis, find_axis
from eureka.curves.readers.table import Table
from eureka.errors import RequestError


def held(steps: Array, rates: Array, wanted: Array) -> Array | None:
    """The rate at each wanted step: that of the last step logged before it, because schedules change the rate in steps.

    >>> held(np.array([0.0, 10.0]), np.array([0.1, 0.01]), np.array([0.0, 9.0, 10.0])).tolist()
    [0.1, 0.1, 0.01]
    """
    if not len(steps):
        return None
    order = np.argsort(steps, kind="stable")
    place = np.searchsorted(steps[order], wanted, side="right") - 1
    return np.asarray(rates[order][np.maximum(place, 0)])


class Rates(NamedTuple):
    """The learning rate at each step of a curve, and the column that it was taken from."""

    column: str
    rates: Array | None


def rates_of(path: Path, steps: Array, step_name: str | None) -> Rates:
    """The learning rate at each step, out of a file of its own: by its name, or a column that is nothing else by name."""
    [source, *_] = open_log(path, (), None)
    table = source.load()
    rate = next((name for name in table.numeric if is_rate(name)), None) or next(
        (part.column for part in find_parts(table) if not is_metric(part.title)), None
    )
    if rate is None:
        raise RequestError(f"{path}: holds no learning rate (there is {', '.join(table.numeric[:12])}); call its column lr.")
    rows = np.flatnonzero(np.isfinite(table.columns[rate]))
    axis = find_axis(table, rows, rate, step_name if step_name in table.numeric else None, rows.astype(float))
    rates = table.columns[rate][axis.rows]
    if axis.name == ROWS:
        if len(rates) != len(steps):
            raise RequestError(f"{path}: {len(rates)} learning rates without steps for a curve of {len(steps)} points.")
        return Rates(rate, rates)
    return Rates(rate, held(axis.steps, rates, steps))


def logged(table: Table, name: str | None, run: Indexes, axis: Axis) -> Array | None:
    """A column at the steps of a curve; a gap takes the number that was logged last in the same run, or else first."""
    if name is None or not len(run):
        return None
    column: Array = table.columns[name]
    there = np.flatnonzero(np.isfinite(column))
    there = there[(there >= run[0]) & (there <= run[-1])]
    if np.array_equal(there, axis.rows):
        return np.asarray(column[there])
    steps = table.columns.get(axis.name)
    if steps is not None and np.array_equal(steps[axis.rows], axis.steps):
        there = there[np.isfinite(steps[there])]
        return held(steps[there], column[there], axis.steps)
    return held(there.astype(float), column[there], axis.rows.astype(float))
