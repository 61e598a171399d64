"""TensorBoard event files: every scalar of every tag, read without TensorBoard.

TensorBoard's own reader keeps 10,000 points a tag unless told otherwise. The format is small: records framed by their length,
each a protobuf `Event` with a step and a `Summary` of tagged values.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from eureka.curves.readers.source import Chunks, Source, finite
from eureka.errors import RequestError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
CHUNK = 50_000


def event_files(path: Path) -> list[Path]:
    """The event files at a path, in the order in which they were begun."""
    return [path] if path.is_file() else sorted(path.rglob("*tfevents*"))


def tensorboard(path: Path) -> Source:
    """One event file, or a folder of them; a tag in several folders is told apart by the folder's name."""
    files = event_files(path)
    folders = {file.parent for file in files}

    def label(file: Path, tag: str) -> str:
        return tag if len(folders) == 1 else f"{file.parent.relative_to(path).as_posix()}/{tag}"

    names: dict[str, None] = {}
    for file in files:
        names.update({label(file, tag): None for tag, _, _ in scalars(file)})

    def series(name: str, _step: str) -> Chunks:
        steps: list[float] = []
        values: list[float] = []
        for file in files:
            for tag, step, value in scalars(file):
                if label(file, tag) == name:
                    steps.append(step)
                    values.append(value)
                if len(steps) == CHUNK:
                    yield finite(np.array(steps, dtype=float), np.array(values))
                    steps, values = [], []
        yield finite(np.array(steps, dtype=float), np.array(values))

    return Source(names=list(names), series=series, own_steps=True)


def scalars(path: Path) -> Iterator[tuple[str, int, float]]:
    """Tag, step and value of every scalar in an event file; a last record cut short is left out."""
    with path.open("rb") as file:
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
