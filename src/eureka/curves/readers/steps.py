"""The steps of a curve: which counter is taken, and why; restarts are counted on, and appended runs told apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import OF, ROWS, is_epoch, rank, run_and_metric
from eureka.curves.readers.counters import Counted, Indexes, shape_of, spread, superseded, unrolled
from eureka.curves.readers.table import Table
from eureka.errors import RequestError
from eureka.formats import plural, step

KNOWN = 0.5
"""A counter must be there in at least this share of the rows of a curve."""
GOES_ON = 0.5
"""After a restart the loss goes on if it jumps by less than this share of the way back to where it began."""
CLEAR = 4.0
"""A way back of fewer than this many standard deviations of the noise does not tell whether the loss goes on."""


@dataclass(frozen=True)
class Axis:
    """The steps of a curve, and the rows of the table that have them, in order."""

    name: str
    rows: Indexes
    steps: Array
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A counter over those rows of a curve that have it."""

    name: str
    rows: Indexes
    counter: Array
    counted: Counted

    @property
    def counts(self) -> bool:
        return self.counted.shape not in ("constant", "none", "absent")

    @property
    def restarts(self) -> bool:
        return self.counted.shape == "restarts"


def find_axis(table: Table, rows: Indexes, column: str, wanted: str | None, numbers: Array) -> Axis:
    """The steps of the rows of one curve of one run: by the wanted counter, the best one that counts, or the row `numbers`."""
    if wanted is not None:
        return _axis(table, _wanted(table, rows, wanted), None)
    candidates = _candidates(table, rows, column)
    epoch = next((one for one in candidates if is_epoch(one.name) and one.counted.shape == "rises"), None)
    chosen = _choose([one for one in candidates if one.counts], epoch)
    refused = [f"{one.name} {_why_not(one)}" for one in candidates if not one.counts and (chosen is None or _before(one, chosen))]
    if chosen is None:
        why = "no column counts steps" + (f" ({'; '.join(refused)})" if refused else "")
        return Axis(ROWS, rows, numbers, (f"{why}: the rows are numbered",))
    axis = _axis(table, chosen, epoch)
    return Axis(axis.name, axis.rows, axis.steps, (*axis.notes, *(f"{note}: not the step" for note in refused)))


def run_starts(table: Table, rows: Indexes, column: str, wanted: str | None) -> tuple[Indexes, tuple[str, ...]]:
    """The rows with which runs begin that were written one after the other into one file, and what shows it."""
    found = _candidates(table, rows, column) if wanted is None else [_candidate(table, rows, wanted)]
    candidates = [one for one in found if one.counts]
    none: tuple[Indexes, tuple[str, ...]] = (rows[:1], ())
    epoch = next((one for one in candidates if is_epoch(one.name)), None)
    best = candidates[0] if candidates else None
    if best is None or any(not one.restarts and one is not epoch for one in candidates):
        return none  # something counts through
    if epoch is not None and not epoch.restarts:
        return none
    outer = epoch or best
    if goes_on(table.columns[column][outer.rows], outer.counted.starts):
        return none
    starts = outer.rows[outer.counted.starts]
    return starts, (f"{outer.name} starts again {plural(len(starts) - 1, 'time')} and the values do too: {len(starts)} runs",)


def goes_on(values: Array, starts: Indexes) -> bool:
    """Whether the values after restarts follow those before, by those restarts that can tell.

    >>> falling = np.linspace(9.0, 1.0, 60)
    >>> goes_on(falling, np.array([0, 20, 40])), goes_on(np.tile(falling[:20], 3), np.array([0, 20, 40]))
    (True, False)
    """
    begin = np.median(values[:5])
    noise = float(np.median(np.abs(np.diff(values)))) / 0.95 if len(values) > 1 else 0.0
    votes = []
    for at in starts[1:].tolist():
        before, after = np.median(values[max(at - 5, 0) : at]), np.median(values[at : at + 5])
        if abs(begin - before) > CLEAR * noise and begin != before:
            votes.append(bool((after - before) / (begin - before) < GOES_ON))
    return bool(votes) and sum(votes) > 0.5 * len(votes)


def _candidates(table: Table, rows: Indexes, column: str) -> list[Candidate]:
    """All counters of the rows of a column, the best name first."""
    run = run_and_metric(column)[0]
    names = [name for name in table.numeric if _rank(name, run) is not None]
    if not table.has_header:
        counts = [name for name in table.numeric if _is_count(table.columns[name][rows])]
        names = sorted(counts, key=lambda name: _is_time(table.columns[name][rows]))[:1]
    found = []
    for name in sorted(names, key=lambda name: _rank(name, run) or 0):
        one = _candidate(table, rows, name)
        if len(one.rows) >= max(2.0, KNOWN * len(rows)):
            found.append(one)
    return found


def _rank(name: str, run: str | None) -> int | None:
    """The rank of a counter; a W&B export may have one for each run."""
    inside, counter = run_and_metric(name)
    return rank(counter if inside is not None and inside == run else name)


def _candidate(table: Table, rows: Indexes, name: str) -> Candidate:
    counter = table.columns[name][rows]
    there = np.isfinite(counter)
    if not there.all():
        rows, counter = rows[there], counter[there]
    return Candidate(name, rows, counter, shape_of(counter))


def _is_count(column: Array) -> bool:
    """Whether a column without a name can be the step: it never falls, and mostly rises."""
    if not np.isfinite(column).all():
        return False
    change = np.diff(column)
    return bool(len(change) and change.min() >= 0 and np.mean(change > 0) > 0.9)


def _is_time(column: Array) -> bool:
    """Whether a column that rises is rather a time: it has fractions, or counts seconds since 1970."""
    return bool(np.any(column != np.round(column)) or column[0] > 1e9)


def _wanted(table: Table, rows: Indexes, name: str) -> Candidate:
    one = _candidate(table, rows, name)
    if one.counted.shape in ("constant", "absent"):
        what = f"is {one.counter[0]:g} in every row" if len(one.counter) else "has no number"
        raise RequestError(f"--step-column {name}: {what} of the curve; a step must rise.")
    return one


def _choose(usable: list[Candidate], epoch: Candidate | None) -> Candidate | None:
    """The best counter that counts through, or that restarts with each epoch; else the best that restarts.

    One that stands still while another goes on (the step of the last evaluation) gives way to that one.
    """
    good = [one for one in usable if not one.restarts or (epoch is not None and _turns(one, epoch) is not None)] or usable
    if len(good) < 2:
        return good[0] if good else None
    finest = max((len(np.unique(one.counter)) for one in good if not is_epoch(one.name)), default=0)
    return next((one for one in good if 2 * len(np.unique(one.counter)) > finest), None)


def _before(one: Candidate, other: Candidate) -> bool:
    return (rank(one.name) or 0) <= (rank(other.name) or 0)


def _why_not(one: Candidate) -> str:
    return f"is {one.counter[0]:g} in every row" if one.counted.shape == "constant" else "goes up and down"


def _turns(one: Candidate, epoch: Candidate) -> Array | None:
    """The epoch of each part of a counter that restarts; None if the epoch does not rise from part to part."""
    if one is epoch or not np.isin(one.rows[one.counted.starts], epoch.rows).all():
        return None
    turns = epoch.counter[np.searchsorted(epoch.rows, one.rows[one.counted.starts])]
    return turns if bool(np.all(np.diff(turns) > 0)) else None


def _axis(table: Table, one: Candidate, epoch: Candidate | None) -> Axis:
    """The steps that a counter gives: counted on over restarts, later rows first where a run was resumed, in order."""
    rows, counter, shape, notes = one.rows, one.counter, one.counted.shape, []
    if shape == "restarts":
        counter, note = _counted_on(table, one, epoch)
        notes.append(note)
    elif shape == "resumed":
        old = superseded(counter, one.counted.starts)
        notes.append(
            f"{one.name} goes back {plural(len(one.counted.starts) - 1, 'time')}: a resumed run, whose later rows are taken"
        )
        rows, counter = rows[~old], counter[~old]
    if shape == "reversed":
        rows, counter = rows[::-1], counter[::-1]
    elif shape in ("unsorted", "none"):
        notes.append(f"rows were put in order of {one.name}")
    if np.any(np.diff(counter) < 0):
        order = np.argsort(counter, kind="stable")
        rows, counter = rows[order], counter[order]
    shared = int(np.sum(np.diff(counter) == 0))
    if shared and rank(run_and_metric(one.name)[1]) == _LAST:
        counter = spread(counter)
        notes.append(f"rows of the same {one.name} are spread evenly over it")
    elif shared:
        notes.append(f"{plural(len(counter), 'row')} at {plural(len(counter) - shared, 'step')}: rows of one step are averaged")
    return Axis(one.name, rows, counter, tuple(notes))


_LAST = rank("epoch")


def _counted_on(table: Table, one: Candidate, epoch: Candidate | None) -> tuple[Array, str]:
    turns = _turns(one, epoch) if epoch is not None else None
    total = table.columns.get(one.name + OF)
    length = float(total[one.rows[0]]) if total is not None and np.ptp(total[one.rows]) == 0 else None
    if length is not None and length < float(np.ptp(one.counter)):
        length = None
    counter, turn = unrolled(one.counter, one.counted.starts, one.counted.increment, length, turns)
    often = plural(len(one.counted.starts) - 1, "time")
    if turns is not None and epoch is not None:
        source = "" if length is not None else ", by the largest count seen"
        return counter, f"{one.name} starts again {often}: counted on by {epoch.name}, {step(turn)} each{source}"
    return counter, f"{one.name} starts again {often} and the values go on: counted on"
