"""CSV, TSV and the like: any delimiter, with a header or without, plain or gzipped; also Lightning's and W&B's exports."""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.series import ROWS, Log, Series, number
from eureka.errors import RequestError

DELIMITERS = (",", "\t", ";", "|", " ")
BLOCK = 1 << 22
"""Bytes read at once: memory does not depend on the length of the file."""

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Layout:
    """How a file is written."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    skipped: int
    """Lines before the first row of numbers."""


def read_table(path: Path, file: IO[bytes], head: bytes, progress: Progress | None = None) -> Log:
    """A table as a log; the first rows, which show the numeric columns, are kept until the series are read."""
    layout = _layout(path, head)
    rest = _tables(path, file, layout, progress)
    first, found = [], np.zeros(len(layout.names), bool)
    for table in rest:
        first.append(table)
        found |= np.isfinite(table).any(axis=0)
        if found.any():
            break

    def read(step: str, names: Sequence[str]) -> list[Series]:
        columns = [layout.names.index(name) for name in names]
        series, row = [Series() for _ in names], 0
        for table in chain(first, rest):
            steps = np.arange(row, row + len(table), dtype=float)
            row += len(table)
            if step != ROWS:
                steps = table[:, layout.names.index(step)]
            for one, column in zip(series, columns, strict=True):
                one.add(steps, table[:, column])
        return series

    numeric = [name for name, good in zip(layout.names, found, strict=True) if good]
    return Log(names=numeric, read=read, has_header=layout.has_header)


def _split(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return line.split()
    return [field.strip() for field in next(csv.reader([line], delimiter=delimiter), [])]


def _layout(path: Path, head: bytes) -> Layout:
    """Guess the delimiter and the header from the first lines."""
    text = head.decode("utf-8-sig", errors="replace").splitlines()
    lines = [(i, line) for i, line in enumerate(text) if line.strip() and not line.lstrip().startswith("#")][:50]
    if not lines:
        raise RequestError(f"{path}: is empty.")
    delimiter = _delimiter([line for _, line in lines])
    first = _split(lines[0][1], delimiter)
    header = all(number(field) != number(field) and field.lower() != "nan" for field in first if field)
    names = tuple(_unique(first)) if header else tuple(f"column {i + 1}" for i in range(len(first)))
    return Layout(delimiter, names, header, lines[0][0] + (1 if header else 0))


def _delimiter(lines: list[str]) -> str:
    """The delimiter that splits most lines into the same number of fields, and into more than one."""
    best, chosen = (0, 0), ","
    for delimiter in DELIMITERS:
        fields, lines_alike = Counter(len(_split(line, delimiter)) for line in lines).most_common(1)[0]
        if fields > 1 and (lines_alike, fields) > best:
            best, chosen = (lines_alike, fields), delimiter
    return chosen


def _unique(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    out = []
    for i, name in enumerate(names):
        name = name or f"column {i + 1}"
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _tables(path: Path, file: IO[bytes], layout: Layout, progress: Progress | None) -> Iterator[Array]:
    """The rows of a file in blocks; a field that is not a number is NaN."""
    line, rest, last = layout.skipped, b"", False
    for _ in range(layout.skipped):
        file.readline()
    while not last:
        block = file.read(BLOCK)
        last = len(block) < BLOCK
        text = rest + block
        cut = len(text) if last else text.rfind(b"\n") + 1
        text, rest = text[:cut], text[cut:]
        yield _table(path, layout, text, line, last)
        line += text.count(b"\n")
        if progress is not None:
            progress(len(block))


def _table(path: Path, layout: Layout, text: bytes, line: int, last: bool) -> Array:
    """Parse a block: at once if it holds plain numbers only, else row by row."""
    width = len(layout.names)
    body = text.strip().replace(b"\r\n", b"\n")
    rows = body.count(b"\n") + 1
    separator = layout.delimiter.encode()
    if layout.delimiter != " " and b"\n\n" not in body and body.count(separator) == rows * (width - 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # older NumPy only warns of a field that is no number
                flat = np.fromstring(body.replace(b"\n", separator).decode(), sep=layout.delimiter)
        except (ValueError, DeprecationWarning):
            flat = np.empty(0)
        if len(flat) == rows * width:
            return flat.reshape(rows, width)
    return _row_by_row(path, layout, text, line, last)


def _row_by_row(path: Path, layout: Layout, text: bytes, line: int, last: bool) -> Array:
    width, out = len(layout.names), []
    lines = text.decode("utf-8", errors="replace").splitlines()
    for place, one in enumerate(lines):
        if not one.strip() or one.lstrip().startswith("#"):
            continue
        fields = _split(one, layout.delimiter)
        if len(fields) != width:
            if last and place == len(lines) - 1 and len(fields) < width:
                continue  # a run in progress has written half a line
            raise RequestError(f"{path}: line {line + place + 1} has {len(fields)} fields where the first has {width}.")
        out.append([number(field) for field in fields])
    return np.array(out, dtype=float).reshape(-1, width)
