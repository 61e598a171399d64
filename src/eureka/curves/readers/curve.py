"""Read the curves out of a log of any of the known formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import (
    VALUE,
    Role,
    base_of,
    is_epoch,
    is_like,
    is_loss,
    is_metric,
    is_rate,
    is_rising,
    is_signed,
    known,
    role_of,
    run_and_metric,
)
from eureka.curves.readers.counters import Indexes, shape_of, spread
from eureka.curves.readers.folders import open_log
from eureka.curves.readers.groups import Part, find_parts
from eureka.curves.readers.rates import logged, rates_of
from eureka.curves.readers.steps import Axis, find_axis, run_starts
from eureka.curves.readers.table import Progress, Source, Table
from eureka.errors import RequestError

LONGEST_NAME = 60
"""Characters of a column's name in a message."""
FEW_BROKEN = 0.1
"""Of a curve that ends with values that are no numbers, at most this share of those before are none; of more they are gaps."""
ORDER: dict[Role, int] = {"train": 0, "validation": 1, "other": 2}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A loss curve, or that of a metric of which more is better, and where it came from."""

    file: str
    metric: str
    step_name: str
    steps: Array
    values: Array
    lr: Array | None
    """The learning rate at each step, if the file (or the one given for it) has it."""
    points: int
    """Points in the file; a very long log is kept thinned out."""
    metrics: tuple[str, ...]
    """All numeric columns of the file."""
    run: str | None = None
    """The name of the run inside the file or folder, if it says one."""
    role: Role = "other"
    rising: bool = False
    """Whether more is better, as of an accuracy."""
    epochs: Array | None = None
    """The epoch of each point, where the file says it."""
    broken: Array = field(default_factory=lambda: np.empty(0))
    """The steps at its end at which the log has no number: nan, inf, or one that is too large."""
    nan_after: bool = False
    """Whether the log has nan or inf after its last point where another run goes on: it diverged, or had ended."""
    notes: tuple[str, ...] = ()
    """Which columns were taken and why, and what was done to the rows."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The columns that the user names."""

    column: str | None = None
    step: str | None = None
    rate: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in (self.column, self.step, self.rate) if name is not None)


def read_log(
    path: str | Path,
    *,
    column: str | None = None,
    step_column: str | None = None,
    lr_column: str | None = None,
    lr_file: str | Path | None = None,
    rising: bool | None = None,
    progress: Progress | None = None,
) -> list[Curve]:
    """Every curve of every run in a file or folder: runs in order, in each run train before validation.

    Columns that are not named are chosen, and the notes of a curve say how.

    Args:
        path: a log, or a folder of logs, in any format that `eureka detect` reads
        column: the curve; all losses and metrics unless given
        step_column: the step; the best column that rises unless given
        lr_column: the learning rate; by its name unless given
        lr_file: a log of the learning rate alone
        rising: more is better; without it the name of the metric decides
        progress: called with the number of bytes each time some were read

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("step,loss,val_acc\\n0,2.5,0.1\\n10,2.0,0.2\\n20,1.5,0.4\\n")
    ...     curves = read_log(file)
    >>> [(curve.metric, curve.role, curve.rising, curve.values.tolist()) for curve in curves]
    [('loss', 'train', False, [2.5, 2.0, 1.5]), ('val_acc', 'validation', True, [0.1, 0.2, 0.4])]
    """
    path, request = Path(path), Request(column=column, step=step_column, rate=lr_column)
    curves, failed = [], []
    for source in open_log(path, request.names, progress):
        try:
            curves += _curves_of(path, source, request)
        except RequestError as error:
            failed.append(error)
    if not curves:
        raise failed[0]
    if rising is not None:
        curves = [replace(curve, rising=rising) for curve in curves]
    if lr_file is not None:
        curves = [_with_rates(curve, Path(lr_file), step_column) for curve in curves]
    left = tuple(f"a part was not read ({error})" for error in failed)
    return [replace(curve, notes=(*curve.notes, *left)) for curve in _in_order(curves)]


def _with_rates(curve: Curve, file: Path, step_column: str | None) -> Curve:
    found = rates_of(file, curve.steps, step_column)
    return replace(curve, lr=found.rates, notes=(*curve.notes, f"the learning rate is {_short(found.column)} of {file}"))


def read_curve(path: str | Path, **options: Any) -> Curve:
    """The first curve of a log of one run, which is its training loss if it has one; takes what `read_log` takes."""
    curves = read_log(path, **options)
    runs = {curve.run for curve in curves}
    if len(runs) > 1:
        raise RequestError(f"{path}: holds {len(runs)} runs; read_log gives the curves of all.")
    return curves[0]


def _in_order(curves: Sequence[Curve]) -> list[Curve]:
    """By run, in the order of the log; losses before other metrics, train before validation."""
    runs = list(dict.fromkeys(curve.run for curve in curves))
    return sorted(curves, key=lambda curve: (runs.index(curve.run), curve.rising, ORDER[curve.role]))


@dataclass(frozen=True, kw_only=True)
class _Opened:
    """A log that was read, with what is judged in it."""

    path: Path
    source: Source
    table: Table
    parts: Sequence[Part]
    step: str | None
    rate: str | None


def _curves_of(path: Path, source: Source, request: Request) -> list[Curve]:
    """The curves of one log: at least one, each with two points or more."""
    table = source.load()
    if not table.numeric:
        raise RequestError(f"{path}: holds no numbers.")
    for name in request.names:
        known((*table.numeric, *table.unread), name)
    rate = request.rate or next((name for name in table.numeric if is_rate(run_and_metric(name)[1])), None)
    parts = [part for part in find_parts(table, request.column) if request.column or part.column not in (request.step, rate)]
    if not parts:
        raise RequestError(
            f"{path}: no column of numbers is left for the loss (there is {_some(table.numeric)}); name one with --column."
        )
    log = _Opened(path=path, source=source, table=table, parts=parts, step=request.step, rate=rate)
    curves = [_curve(log, part, notes) for part, notes in _runs(log) if _there(table, part).sum() > 1]
    found = [curve for curve in curves if len(curve.values) > 1]
    if not found:
        column = table.columns[parts[0].column]
        count, broken = int(np.isfinite(column).sum()), int(np.isinf(column).sum())
        what = "one point" if count == 1 else "no finite value" if not count else "fewer than two points with a step"
        what += f", and {broken:,} that {'is' if broken == 1 else 'are'} nan or inf" if broken else ""
        raise RequestError(f"{path}: {_short(parts[0].column)!r} has {what}; a curve needs at least two.")
    return found


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names[:12])) + (", …" if len(names) > 12 else "")


def _short(name: str) -> str:
    """A name of a column as it is shown: it may be as long as the file."""
    return name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…"


def _there(table: Table, part: Part) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.isfinite(table.columns[part.column][part.rows])


@dataclass(frozen=True)
class _Ending:
    rows: Indexes
    """The rows of a part that have a number, and those at its end that say that they have none."""
    beside: bool = False
    """Whether the rows at its end were left out because another run has numbers there."""


def _until_the_end(table: Table, part: Part) -> _Ending:
    """Where a part ends, and whether it ends with nan.

    Some programs write nan where nothing was measured. Then others lie between the numbers, too, or another loss of this run has
    numbers in these rows: what diverges has none left. Where runs lie side by side, nan may also fill the rows of one that ended.
    """
    column = table.columns[part.column][part.rows]
    said = part.rows[~np.isnan(column)]
    finite = np.flatnonzero(np.isfinite(column[~np.isnan(column)]))
    between = np.diff(finite, prepend=-1) - 1
    last = said[finite[-1] + 1 :]
    if not len(last) or between.sum() > FEW_BROKEN * len(finite) or len(last) <= 2 * between.max():
        return _Ending(said[finite])
    losses = [name for name in table.numeric if name != part.column and is_loss(run_and_metric(name)[1])]
    going_on = {run_and_metric(name)[0] for name in losses if np.isfinite(table.columns[name][last]).any()}
    if going_on:
        return _Ending(said[finite], beside=run_and_metric(part.column)[0] not in going_on)
    return _Ending(said[np.append(finite, np.arange(finite[-1] + 1, len(said)))])


def _runs(log: _Opened) -> Iterator[tuple[Part, tuple[str, ...]]]:
    """The parts, cut where a new run begins: several may have been written into one file, one after the other."""
    for same in _by_run(log):
        longest = max(same, key=lambda part: int(_there(log.table, part).sum()))
        rows = longest.rows[_there(log.table, longest)]
        starts, notes = run_starts(log.table, rows, longest.column, log.step)
        bounds = [0, *starts[1:].tolist(), log.table.rows]
        for i, (a, b) in enumerate(pairwise(bounds), start=1):
            for part in same:
                name = part.run if len(bounds) == 2 else f"{part.run} ({i})" if part.run else f"run {i}"
                yield replace(part, run=name, rows=part.rows[(part.rows >= a) & (part.rows < b)]), notes


def _by_run(log: _Opened) -> list[list[Part]]:
    """The parts of one run, which begin together; where each column counts its own steps, each part alone."""
    if log.table.own_steps:
        return [[part] for part in log.parts]
    return [[part for part in log.parts if part.run == run] for run in dict.fromkeys(part.run for part in log.parts)]


def _curve(log: _Opened, part: Part, notes: Sequence[str]) -> Curve:
    """A part with its steps, its rate and its epochs."""
    table, source = log.table, log.source
    ending = _until_the_end(table, part)
    numbers = _numbers(table, part, ending.rows)
    whole = _counted_alike(table, part, find_axis(table, ending.rows, part.column, log.step, numbers))
    finite = np.isfinite(table.columns[part.column][whole.rows])
    axis = whole if finite.all() else replace(whole, rows=whole.rows[finite], steps=whole.steps[finite])
    title = f"{source.split} {part.title}".strip()
    unnamed = is_like(part.title, VALUE) or (not table.has_header and len(log.parts) == 1)
    named = f"{source.hint} {title}" if unnamed else title
    values = table.columns[part.column][axis.rows]
    below_zero = is_signed(named) and float(np.median(values)) < 0.0
    return Curve(
        file=str(log.path),
        metric=part.column if part.title == run_and_metric(part.column)[1] and not source.split else title,
        step_name=run_and_metric(axis.name)[1],
        steps=axis.steps,
        values=values,
        lr=logged(table, log.rate, part.rows, axis) if log.rate != part.column else None,
        points=len(axis.rows) if table.every == 1 else table.points[part.column],
        metrics=(*(name for name in table.numeric if not table.own_steps or name != axis.name), *table.unread),
        run=" ".join(one for one in (source.run, part.run) if one) or None,
        role=_role(named, [f"{source.split} {other.title}" for other in log.parts]),
        rising=is_rising(named) or below_zero,
        epochs=_epochs(table, part, axis),
        broken=whole.steps[~finite],
        nan_after=ending.beside,
        notes=(*source.notes, *table.notes, *_all_broken(table), *notes, *_choice(part, named, below_zero), *axis.notes),
    )


def _all_broken(table: Table) -> Iterator[str]:
    """Losses and metrics that are never a number, which are not judged."""
    for name in (name for name in table.numeric if is_metric(run_and_metric(name)[1])):
        column = table.columns[name]
        if np.isinf(column).any() and not np.isfinite(column).any():
            yield f"{_short(name)} is nan or inf in all of its {int(np.isinf(column).sum()):,} rows"


def _role(title: str, others: Sequence[str]) -> Role:
    """By name; what has no role in its name is train, if it is a loss or has a validation beside it."""
    role = role_of(title)
    beside = any(role_of(other) == "validation" and base_of(other) == base_of(title) for other in others)
    return "train" if role == "other" and (is_loss(title) or beside) else role


def _choice(part: Part, title: str, below_zero: bool) -> Iterator[str]:
    """Why the column was taken, and which way it is better, where its name does not say it."""
    if is_signed(title):
        sign, better, other = ("below", "more", "--falling") if below_zero else ("not below", "less", "--rising")
        yield f"{part.column} is {sign} zero: {better} is taken to be better; {other} says otherwise"
    elif not is_loss(title) and not is_rising(title):
        yield f"{part.column} is not named like a loss: taken because it is nothing else; a fall counts unless --rising is given"


def _numbers(table: Table, part: Part, rows: Indexes) -> Array:
    """The numbers of rows, from 0, for a curve without steps; where other rows lie between, its own rows are counted."""
    if len(part.rows) <= part.rows[-1] - part.rows[0] or 2 * len(rows) <= len(part.rows):
        return np.arange(len(rows), dtype=float)
    return np.asarray((rows - part.rows[0]) * float(table.every) + 0.5 * (table.every - 1))


def _counted_alike(table: Table, part: Part, axis: Axis) -> Axis:
    """The steps of a curve, in the count of the rows between: MMEngine calls epochs ``step`` in the rows of its evaluations."""
    counter = table.columns.get(axis.name)
    if counter is None or not np.array_equal(counter[axis.rows], axis.steps):
        return axis
    if len(axis.rows) < 3 or len(part.rows) < 4 * len(axis.rows):
        return axis
    counts = np.isfinite(counter)
    counts[axis.rows] = False
    others = part.rows[counts[part.rows]]
    place = np.searchsorted(others, axis.rows) - 1
    if len(others) < 3 * len(axis.rows) or place.min() < 0 or shape_of(counter[others]).shape != "rises":
        return axis
    before = counter[others[place]]
    if np.mean(axis.steps < 0.5 * before) < 0.9 or np.any(np.diff(before) <= 0):
        return axis
    return replace(
        axis, steps=before, notes=(*axis.notes, f"{axis.name} counts something else here: that of the rows before is taken")
    )


def _epochs(table: Table, part: Part, axis: Axis) -> Array | None:
    """The epoch of each point, also between whole ones; None where the file does not say it, or each point is a whole epoch."""
    name = next((name for name in table.numeric if is_epoch(name) and not is_like(name, "epochs")), None)
    epochs = logged(table, name, part.rows, axis)
    if epochs is None or np.ptp(epochs) == 0:
        return None
    if not np.all(epochs == np.round(epochs)):
        return epochs
    return None if len(np.unique(epochs)) == len(epochs) else spread(epochs)
