"""TensorBoard event files: every scalar of every tag, read without TensorBoard.

TensorBoard's own reader keeps 10,000 points a tag unless told otherwise. The format is small: records framed by their length,
each a protobuf `Event` with a step and a `Summary` of tagged values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from eureka.curves.readers.numbers import number
from eureka.curves.readers.protobuf import DamagedMessageError, fields
from eureka.curves.readers.table import Table, TableBuilder
from eureka.errors import RequestError

STEP = "step"
LARGEST = 1 << 28
"""Bytes of the largest record; it may hold a picture."""


def read_events(files: Iterable[tuple[Path, IO[bytes]]]) -> Table:
    """The event files of one run, as rows of a step and the values of its tags."""
    builder = TableBuilder()
    for path, file in files:
        row: dict[str, float | str] = {}
        for tag, step, value in scalars(path, file):
            if row.get(STEP) != step or tag in row:
                if row:
                    builder.add_record(row)
                row = {STEP: float(step)}
            row[tag if tag != STEP else "step (tag)"] = number(value)
        if row:
            builder.add_record(row)
    return builder.finish(own_steps=True)


def scalars(path: Path, file: IO[bytes]) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of every scalar in an event file; an incomplete last record is left out."""
    while len(head := file.read(12)) == 12:
        (length,) = struct.unpack("<Q", head[:8])
        if length > LARGEST:
            raise RequestError(f"{path}: not a TensorBoard event file, or damaged.")
        record = file.read(length + 4)
        if len(record) < length + 4:
            return
        try:
            yield from _event(record[:-4])
        except (DamagedMessageError, struct.error, UnicodeDecodeError):
            raise RequestError(f"{path}: not a TensorBoard event file, or damaged.") from None


def _event(record: bytes) -> Iterator[tuple[str, int, float]]:
    step, summary = 0, b""
    for field, value in fields(record):
        if field == 2 and isinstance(value, int):
            step = value if value < 1 << 63 else value - (1 << 64)
        elif field == 5 and isinstance(value, bytes):
            summary = value
    for field, value in fields(summary):
        if field == 1 and isinstance(value, bytes):
            tag, number = _value(value)
            if number is not None:
                yield tag, step, number


def _value(message: bytes) -> tuple[str, float | None]:
    """A Summary.Value: its tag, and its number if it is a scalar."""
    tag, number = "", None
    for field, value in fields(message):
        if field == 1 and isinstance(value, bytes):
            tag = value.decode("utf-8")
        elif field == 2 and isinstance(value, bytes):
            number = float(struct.unpack("<f", value)[0])
        elif field == 8 and isinstance(value, bytes):
            number = _tensor(value)
    return tag, number


def _tensor(message: bytes) -> float | None:
    """A TensorProto that holds one float or double."""
    kind, content, floats, doubles = 0, b"", b"", b""
    for field, value in fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif isinstance(value, bytes):
            content = value if field == 4 else content
            floats = value if field == 5 else floats
            doubles = value if field == 6 else doubles
    width, code, data = (4, "<f", content or floats) if kind == 1 else (8, "<d", content or doubles)
    return float(struct.unpack(code, data)[0]) if kind in (1, 2) and len(data) == width else None
