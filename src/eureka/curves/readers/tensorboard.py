"""TensorBoard event files: every scalar of every tag, read without TensorBoard.

TensorBoard's own reader keeps 10,000 points a tag unless told otherwise. The format is small: records framed by their length,
each a protobuf `Event` with a step and a `Summary` of tagged values.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import numpy as np

from eureka.curves.readers.series import Log, Series
from eureka.errors import RequestError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def event_files(path: Path) -> list[Path]:
    """The event files at a path, in the order in which they were begun."""
    return [path] if path.is_file() else sorted(path.rglob("*tfevents*"))


def read_events(path: Path, file: IO[bytes] | None = None) -> Log:
    """One event file, or a folder of them; a tag that is in several folders gets the name of its folder in front."""
    files = event_files(path)
    several = len({one.parent for one in files}) > 1
    points: dict[str, tuple[array[float], array[float]]] = {}
    for one in files:
        prefix = f"{one.parent.relative_to(path).as_posix()}/" if several else ""
        with nullcontext(file) if file is not None else one.open("rb") as opened:
            for tag, step, value in scalars(one, opened):
                steps, values = points.setdefault(prefix + tag, (array("d"), array("d")))
                steps.append(step)
                values.append(value)

    def read(_step: str, names: Sequence[str]) -> list[Series]:
        series = [Series() for _ in names]
        for one, name in zip(series, names, strict=True):
            steps, values = points[name]
            one.add(np.asarray(steps), np.asarray(values))
        return series

    return Log(names=list(points), read=read, own_steps=True)


def scalars(path: Path, file: IO[bytes]) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of every scalar in an event file; an incomplete last record is left out."""
    while len(head := file.read(12)) == 12:
        (length,) = struct.unpack("<Q", head[:8])
        if length > 1 << 31:
            raise RequestError(f"{path}: not a TensorBoard event file, or damaged.")
        record = file.read(length + 4)
        if len(record) < length + 4:
            return
        try:
            yield from _event(record[:-4])
        except (IndexError, struct.error, UnicodeDecodeError):
            raise RequestError(f"{path}: not a TensorBoard event file, or damaged.") from None


def _event(record: bytes) -> Iterator[tuple[str, int, float]]:
    step, summary = 0, b""
    for field, value in _fields(record):
        if field == 2 and isinstance(value, int):
            step = value
        elif field == 5 and isinstance(value, bytes):
            summary = value
    for field, value in _fields(summary):
        if field == 1 and isinstance(value, bytes):
            tag, number = _value(value)
            if number is not None:
                yield tag, step, number


def _value(message: bytes) -> tuple[str, float | None]:
    """A Summary.Value: its tag, and its number if it is a scalar."""
    tag, number = "", None
    for field, value in _fields(message):
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
    for field, value in _fields(message):
        if field == 1 and isinstance(value, int):
            kind = value
        elif isinstance(value, bytes):
            content = value if field == 4 else content
            floats = value if field == 5 else floats
            doubles = value if field == 6 else doubles
    width, code, data = (4, "<f", content or floats) if kind == 1 else (8, "<d", content or doubles)
    return float(struct.unpack(code, data)[0]) if kind in (1, 2) and len(data) == width else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field of a protobuf message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(message, at)
            yield field, value
            continue
        if wire == BYTES:
            length, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise IndexError(wire)
        if at + length > len(message):
            raise IndexError(at)
        yield field, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
