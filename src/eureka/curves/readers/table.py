"""What every reader gives: a table of numbers by row and column, in bounded memory however long the log is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import is_metric, is_rate, rank, tells
from eureka.curves.readers.numbers import NAN

CELLS = 8_000_000
"""Numbers kept of one table; in longer ones neighbouring rows are averaged until they fit."""
BLOCK = 4096
"""Records that become one block of columns."""
COLUMNS = 4000
"""Columns of one table; what has more is not a log."""
LABELS, FEW = 5000, 20
"""Different texts that are kept of a column that tells rows apart by its name, and of any other."""

Block = dict[str, Array]
Progress = Callable[[int], None]
"""Is told how many bytes were read."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns of equal length; a gap is NaN, and what is there and is no number is infinite."""

    columns: Mapping[str, Array]
    labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The texts of the columns that hold text; their numbers are places in this list."""
    points: Mapping[str, int] = field(default_factory=dict)
    """Numbers of each column before rows were averaged."""
    has_header: bool = True
    own_steps: bool = False
    """Whether each column may count its own steps, as in TensorBoard."""
    every: int = 1
    """Rows of the log that were averaged to one."""
    unread: tuple[str, ...] = ()
    """Names of other numbers, which a text log has and which are read if they are asked for."""
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values()), np.empty(0)))

    @property
    def numeric(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name not in self.labels)


@dataclass(frozen=True, kw_only=True)
class Source:
    """One log of a file or folder, and whose it is."""

    load: Callable[[], Table]
    """Reads it."""
    run: str | None = None
    split: str = ""
    """The split that a folder or file stands for, such as ``train``; put in front of the names of its columns."""
    hint: str = ""
    """A name that says what a column called ``value`` is."""
    notes: tuple[str, ...] = ()


class TableBuilder:
    """Collects blocks of columns, or single records, into a `Table`.

    >>> builder = TableBuilder(cells=6)
    >>> for i in range(8): builder.add_record({"step": i, "loss": 0.0})
    >>> table = builder.finish()
    >>> table.columns["step"].tolist(), table.points["step"]
    ([1.5, 5.5], 8)
    """

    def __init__(self, cells: int | None = None) -> None:
        self.cells = CELLS if cells is None else cells
        self.points: Counter[str] = Counter()
        self.notes: list[str] = []
        self._codes: dict[str, dict[str, int]] = {}
        self._names: dict[str, None] = {}
        self._blocks: list[Block] = []
        self._rows = self._halvings = 0
        self._waiting: dict[str, tuple[list[int], list[float]]] = {}
        self._records = 0

    def add_record(self, record: Mapping[str, float | str]) -> None:
        """One row; a text is a label."""
        for name, value in record.items():
            cells = self._waiting.get(name)
            if cells is None:
                if name not in self._names and len(self._waiting) + len(self._names) >= COLUMNS:
                    continue
                cells = self._waiting[name] = ([], [])
            cells[0].append(self._records)
            cells[1].append(self._text(name, value) if isinstance(value, str) else value)
        self._records += 1
        if self._records >= BLOCK:
            self._flush()

    def _text(self, name: str, text: str) -> float:
        """A text in a column that has numbers by its name, such as "NaN" or "overflow", is a gap."""
        return NAN if rank(name) is not None or is_metric(name) or is_rate(name) else self.code(name, text)

    def code(self, name: str, text: str) -> float:
        """The number that stands for a text in its column; NaN beyond the number of texts that is kept."""
        codes = self._codes.setdefault(name, {})
        if text not in codes and len(codes) >= (LABELS if tells(name) else FEW + 1):
            return NAN
        return float(codes.setdefault(text, len(codes)))

    def _labels(self) -> list[str]:
        """The columns of text that tell rows apart: a column of many different texts, such as times or messages, does not."""
        return [name for name, codes in self._codes.items() if tells(name) or len(codes) <= FEW]

    def add(self, block: Mapping[str, Array]) -> None:
        """Rows by column."""
        self._flush()
        self._add(dict(block))

    def _flush(self) -> None:
        if self._records:
            block = {}
            for name, (rows, values) in self._waiting.items():
                block[name] = np.full(self._records, NAN)
                block[name][rows] = values
            rows_in_it, self._waiting, self._records = self._records, {}, 0
            self._add(block or {"": np.full(rows_in_it, NAN)})

    def _add(self, block: Block) -> None:
        for name in block:
            if np.isinf(block[name]).any() and (rank(name) is not None or is_rate(name)):
                block[name] = np.where(np.isinf(block[name]), NAN, block[name])
        for name, column in block.items():
            self.points[name] += int(np.isfinite(column).sum())
            self._names.setdefault(name)
        for _ in range(self._halvings):
            block = self._halved(block)
        self._blocks.append(block)
        self._rows += _length(block)
        while self._rows * len(self._names) > self.cells and self._rows > 2:
            whole = self._halved(self._whole())
            self._blocks, self._halvings, before, self._rows = [whole], self._halvings + 1, self._rows, _length(whole)
            if self._rows == before:
                break

    def _whole(self) -> Block:
        """All blocks as one; a column that came later has gaps before."""
        return {
            name: np.concatenate([block[name] if name in block else np.full(_length(block), NAN) for block in self._blocks])
            for name in self._names
        }

    def _halved(self, block: Block) -> Block:
        """Pairs of rows as their means; rows of different labels stay apart, and so does what a counter that restarts counted."""
        labels = [block[name] for name in self._labels() if name in block]
        count = _length(block)
        if labels:
            order = np.lexsort([np.nan_to_num(label, nan=np.inf) for label in labels])
            block = {name: column[order] for name, column in block.items()}
            labels = [block[name] for name in self._labels() if name in block]
        even = count // 2 * 2
        alike = np.ones(even // 2, bool)
        for label in labels:
            first, second = label[0:even:2], label[1:even:2]
            alike &= (first == second) | (np.isnan(first) & np.isnan(second))
        keep = np.ones(count, bool)
        keep[1:even:2] = ~alike
        out = {}
        for name, column in block.items():
            merged = column.copy()
            merged[0:even:2] = np.where(alike, _mean(name, column[0:even:2], column[1:even:2]), column[0:even:2])
            out[name] = merged[keep]
        return out

    def finish(self, *, has_header: bool = True, own_steps: bool = False) -> Table:
        self._flush()
        if self._halvings:
            self.notes.append(f"a long log: neighbouring rows were averaged, {2**self._halvings} to one")
        for name in ("", *(set(self._codes) - set(self._labels()))):
            self._names.pop(name, None)
        labels = {name: tuple(self._codes[name]) for name in self._labels() if name in self._names}
        whole = self._whole() if self._blocks else {}
        return Table(
            columns={name: column for name, column in whole.items() if name in labels or not np.isnan(column).all()},
            labels=labels,
            points=self.points,
            has_header=has_header,
            own_steps=own_steps,
            every=2**self._halvings,
            notes=tuple(self.notes),
        )


def _length(block: Block) -> int:
    return len(next(iter(block.values()), ()))


def _mean(name: str, first: Array, second: Array) -> Array:
    """The mean of two rows; if one is no number it is the other, and a counter that restarts between them its first."""
    one, other = np.isfinite(first), np.isfinite(second)
    mean = np.where(one & other, 0.5 * (first + second), np.where(one, first, np.where(other, second, np.fmax(first, second))))
    return np.where(second < first, first, mean) if rank(name) is not None else mean
