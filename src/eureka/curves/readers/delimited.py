"""CSV, TSV and the like: any delimiter, with a header or without; also the exports of Lightning, W&B and spreadsheets."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.layout import RULES, Layout, either, find_layout, plain
from eureka.curves.readers.numbers import BROKEN, LARGEST, Comma, comma_of, number
from eureka.curves.readers.table import Progress, Table, TableBuilder
from eureka.errors import RequestError
from eureka.formats import plural

BLOCK = 1 << 22
"""Bytes read at once: memory does not depend on the length of the file."""
STRAY = 0.01
"""Lines of a block that may be something else, such as a warning printed in between."""


def read_table(path: Path, file: IO[bytes], head: bytes, progress: Progress | None = None) -> Table:
    """A table, read in blocks."""
    layout = find_layout(path, head)
    builder = TableBuilder()
    if layout.preamble:
        builder.notes.append(f"the table begins after line {layout.preamble}")
    if layout.comma == "decimal":
        builder.notes.append("commas are decimal points")
    for block in _blocks(path, file, layout, builder, progress):
        builder.add({name: column for name, column in zip(layout.names, block, strict=True) if _kept(name)})
    return builder.finish(has_header=layout.has_header)


def _kept(name: str) -> bool:
    """W&B exports give the limits of every column beside it."""
    return not name.endswith(("__MIN", "__MAX"))


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
            return list(_without_nan(flat).reshape(rows, width).T)
    return _field_by_field(path, layout, builder, text, line, last)


def _without_nan(fields: Array) -> Array:
    """Where every field is written as a number, NaN is no gap."""
    return np.where(np.abs(fields) < LARGEST, fields, BROKEN)


def _field_by_field(path: Path, layout: Layout, builder: TableBuilder, text: bytes, line: int, last: bool) -> list[Array]:
    lines = plain(text.decode("utf-8", errors="replace")).split("\n")
    full = [place for place, one in enumerate(lines) if one.strip(RULES) and not one.lstrip().startswith("#")]
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
        else _numbers(path, column, layout.comma)
        for i, column in enumerate(columns)
    ]


def _numbers(path: Path, column: Sequence[str], comma: Comma) -> Array:
    """The fields of a column as `number` reads them."""
    if comma == "none":
        try:
            return _without_nan(np.array(column, dtype=np.float64))
        except ValueError:
            pass
    if comma != "decimal" and any("," in field for field in column):  # beyond the lines by which the layout was found
        found = comma_of([column])
        if found is None or (found == "decimal" and comma == "thousands"):
            raise RequestError(either(path, [column]))
        comma = found if found != "none" else comma
    return np.array([number(field, comma) for field in column], dtype=np.float64)
