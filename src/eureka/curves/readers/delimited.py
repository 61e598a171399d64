"""CSV, TSV and the like: any delimiter, with a header or without; also the exports of Lightning, W&B and spreadsheets."""

from __future__ import annotations

import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import IO

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import METRIC, RUN, SPLIT, is_like
from eureka.curves.readers.numbers import Comma, comma_of, looks_numeric, number
from eureka.curves.readers.table import Progress, Table, TableBuilder
from eureka.errors import RequestError
from eureka.formats import plural

DELIMITERS = (",", "\t", ";", "|", " ")
BLOCK = 1 << 22
"""Bytes read at once: memory does not depend on the length of the file."""
LOOKED_AT = 200
"""Lines by which the layout is found."""
WHOLE = 1 << 16
"""A head of fewer bytes is the whole file."""
STRAY = 0.01
"""Lines of a block that may be something else, such as a warning printed in between."""
KINDS = 20
"""Different texts in a column without a name that still tell rows apart."""
GAPS = ("", "nan", "none", "null", "n/a", "na", "-", "inf", "-inf")


@dataclass(frozen=True)
class Layout:
    """How a file is written."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    skipped: int
    """Lines before the first row of numbers."""
    start: int
    """Bytes before it."""
    labels: tuple[int, ...] = ()
    """The places of columns of text that tell rows apart."""
    comma: Comma = "none"

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        return split(lines, self.delimiter)


def read_table(path: Path, file: IO[bytes], head: bytes, progress: Progress | None = None) -> Table:
    """A table, read in blocks."""
    layout = find_layout(path, head)
    builder = TableBuilder()
    if layout.has_header and layout.skipped > 1:
        builder.notes.append(f"the table begins at line {layout.skipped}")
    for block in _blocks(path, file, layout, builder, progress):
        wanted = {name: column for i, (name, column) in enumerate(zip(layout.names, block, strict=True)) if _kept(name)}
        builder.add(wanted)
    table = builder.finish(has_header=layout.has_header)
    numeric = {name: column for name, column in table.columns.items() if name in table.labels or np.isfinite(column).any()}
    return Table(
        columns=numeric,
        labels=table.labels,
        points=table.points,
        has_header=table.has_header,
        every=table.every,
        notes=table.notes,
    )


def is_table(head: bytes, says_metrics: bool) -> bool:
    """Whether most lines, from some line on, have the same number of fields, and numbers among them.

    Lines that name a metric beside its number (`says_metrics`) are a table only if they are bare words and numbers in columns, of
    which the first is a number or two neighbours are: ``100 train_loss 2.3`` and ``train_loss 100 2.3``.
    """
    lines = _lines(head)
    if not lines:
        return False
    _, rows = _best_delimiter(lines)
    if says_metrics:
        rows = split(lines, " ")
    width = _width(rows)
    data = [row for row in rows if _is_data(row, width)]
    first = next((i for i, row in enumerate(rows) if _is_data(row, width)), len(rows))
    if len(data) < max(1.0, 0.5 * (len(rows) - first)):
        return False
    return not says_metrics or (len(data) > 0.8 * len(rows) and all(map(_is_bare, data)))


def _is_bare(row: list[str]) -> bool:
    numbers = [looks_numeric(field) for field in row]
    words = all(number or re.fullmatch(r"[A-Za-z][\w/.-]*", field) for field, number in zip(row, numbers, strict=True))
    return words and (numbers[0] or any(a and b for a, b in pairwise(numbers)))


def _lines(head: bytes) -> list[str]:
    """The first lines, without comments and gaps."""
    return [line for _, line in _numbered_lines(head)]


def _numbered_lines(head: bytes) -> list[tuple[int, str]]:
    text = head.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if len(text) > 1 and len(head) >= WHOLE:
        text.pop()  # cut short
    return [(i, line) for i, line in enumerate(text) if line.strip(" \t,;|") and not line.lstrip().startswith("#")][:LOOKED_AT]


def _kept(name: str) -> bool:
    """W&B exports give the limits of every column beside it."""
    return not name.endswith(("__MIN", "__MAX"))


def split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The fields of lines."""
    if delimiter == " ":
        return [line.split() for line in lines]
    if any('"' in line for line in lines):
        return [
            [field.strip() for field in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]
            for line in lines
        ]
    return [[field.strip() for field in line.split(delimiter)] for line in lines]


def find_layout(path: Path, head: bytes) -> Layout:
    """Delimiter, header, and what commas mean, from the first lines."""
    lines = _numbered_lines(head)
    if not lines:
        raise RequestError(f"{path}: is empty.")
    delimiter, rows = _best_delimiter([line for _, line in lines])
    width = _width(rows)
    first = next((i for i, row in enumerate(rows) if _is_data(row, width)), 0)
    data = [row for row in rows[first:] if len(row) == width]
    header = _header(rows, first, width)
    names = tuple(_unique(header)) if header is not None else tuple(f"column {i + 1}" for i in range(width))
    columns = list(zip(*data, strict=True))
    comma = comma_of([column for column in columns if any(looks_numeric(field) for field in column)]) if columns else "none"
    if comma is None:
        raise RequestError(
            f"{path}: numbers such as {_ambiguous(columns)} may have thousands or decimals; write them without commas."
        )
    labels = tuple(i for i, column in enumerate(columns) if _tells(names[i], column, header is not None))
    return Layout(delimiter, names, header is not None, lines[first][0], _start(head, lines[first][0]), labels, comma)


def _start(head: bytes, line: int) -> int:
    """The place of a line, whichever characters end lines."""
    return 0 if line == 0 else next(islice(re.finditer(rb"\r\n|\r|\n", head), line - 1, None)).end()


def _best_delimiter(lines: list[str]) -> tuple[str, list[list[str]]]:
    """The delimiter under which most fields are numbers, in lines with the same number of fields."""
    best, chosen = (-1, -1), (",", [[line.strip()] for line in lines])
    for delimiter in DELIMITERS:
        rows = split(lines, delimiter)
        width = _width(rows)
        numbers = sum(sum(map(looks_numeric, row)) for row in rows if len(row) == width)
        if width > 1 and (numbers, width) > best and numbers:
            best, chosen = (numbers, width), (delimiter, rows)
    return chosen


def _width(rows: list[list[str]]) -> int:
    """The usual number of fields of rows that hold a number."""
    counts = Counter(len(row) for row in rows if any(map(looks_numeric, row)))
    return counts.most_common(1)[0][0] if counts else len(rows[0])


def _is_data(row: list[str], width: int) -> bool:
    return len(row) == width and any(map(looks_numeric, row)) and not all(field.lower() in GAPS for field in row)


def _header(rows: list[list[str]], first: int, width: int) -> list[str] | None:
    """The line before the numbers, if it can name their columns; R leaves out the name of the first."""
    names = next((row for row in reversed(rows[:first]) if len(row) in (width, width - 1) and any(row)), None)
    if names is None or (len(names) < width and width < 3) or any(number(name) == number(name) for name in names if name):
        return None
    return names if len(names) == width else ["", *names]


def _unique(names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    out = []
    for i, name in enumerate(names):
        name = name or ("index" if i == 0 else f"column {i + 1}")
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _tells(name: str, column: Sequence[str], named: bool) -> bool:
    """Whether a column of text tells runs, splits or metrics apart."""
    texts = [field for field in column if field.lower() not in GAPS]
    if not texts or sum(map(looks_numeric, texts)) > 0.2 * len(texts):
        return False
    if named:
        return any(is_like(name, pattern) for pattern in (RUN, SPLIT, METRIC))
    return 1 < len(set(texts)) <= min(KINDS, len(texts) // 2)


def _ambiguous(columns: Sequence[Sequence[str]]) -> str:
    return next((repr(field) for column in columns for field in column if "," in field), "1,000")


def _blocks(
    path: Path, file: IO[bytes], layout: Layout, builder: TableBuilder, progress: Progress | None
) -> Iterator[list[Array]]:
    """The columns of a file, block by block."""
    line, rest, last = layout.skipped, b"", False
    file.seek(layout.start)
    while not last:
        block = file.read(BLOCK)
        last = len(block) < BLOCK
        text = rest + block
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        cut = len(text) if last else text.rfind(b"\n") + 1
        text, rest = text[:cut], text[cut:]
        if len(rest) > BLOCK:
            raise RequestError(f"{path}: line {line + 1} is longer than {BLOCK:,} bytes; this is not a table.")
        yield _columns(path, layout, builder, text, line, last)
        line += text.count(b"\n")
        if progress is not None:
            progress(len(block))


def _columns(path: Path, layout: Layout, builder: TableBuilder, text: bytes, line: int, last: bool) -> list[Array]:
    """Parse a block: at once if it holds plain numbers only, else field by field."""
    width = len(layout.names)
    body = text.strip()
    rows = body.count(b"\n") + 1
    separator = layout.delimiter.encode()
    if layout.delimiter != " " and not layout.labels and b"\n\n" not in body and body.count(separator) == rows * (width - 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", DeprecationWarning)  # older NumPy only warns of a field that is no number
                flat = np.fromstring(body.replace(b"\n", separator).decode(), sep=layout.delimiter)
        except (ValueError, DeprecationWarning):
            flat = np.empty(0)
        if len(flat) == rows * width:
            return list(flat.reshape(rows, width).T)
    return _field_by_field(path, layout, builder, text, line, last)


def _field_by_field(path: Path, layout: Layout, builder: TableBuilder, text: bytes, line: int, last: bool) -> list[Array]:
    lines = text.decode("utf-8", errors="replace").split("\n")
    full = [place for place, one in enumerate(lines) if one.strip() and not one.lstrip().startswith("#")]
    rows = layout.split([lines[place] for place in full])
    width = len(layout.names)
    if last and rows and len(rows[-1]) < width:
        rows.pop()  # a run in progress has written half a line
    wrong = [i for i, row in enumerate(rows) if len(row) != width]
    if len(wrong) > STRAY * len(rows):
        first = wrong[0]
        raise RequestError(f"{path}: line {line + full[first] + 1} has {len(rows[first])} fields where the first has {width}.")
    if wrong:
        builder.notes.append(
            f"{plural(len(wrong), 'line')} with another number of fields left out, the first is {line + full[wrong[0]] + 1}"
        )
        rows = [row for row in rows if len(row) == width]
    columns: list[Sequence[str]] = list(zip(*rows, strict=True)) if rows else [()] * width
    return [
        np.array([builder.code(layout.names[i], field) if field else np.nan for field in column])
        if i in layout.labels
        else _numbers(column, layout.comma)
        for i, column in enumerate(columns)
    ]


def _numbers(column: Sequence[str], comma: Comma) -> Array:
    """The fields of a column; what is not a number is NaN."""
    if comma == "none":
        try:
            return np.array(column, dtype=np.float64)
        except ValueError:
            pass
    return np.array([number(field, comma) for field in column], dtype=np.float64)
