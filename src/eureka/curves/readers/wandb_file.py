"""W&B's run files (``run-….wandb``), also of runs that were never uploaded, read without W&B.

The file is LevelDB's log format: blocks of 32 KiB with records framed by checksum, length and type; each record is a protobuf
`Record`, of which field 2 is a `HistoryRecord` whose items have a key (or a nested key) and a value in JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from eureka.curves.readers.json_log import numbers
from eureka.curves.readers.protobuf import DamagedMessageError, fields
from eureka.curves.readers.table import Table, TableBuilder
from eureka.errors import RequestError

IDENT = b":W&B"
BLOCK, HEADER = 32_768, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY, ITEM, STEP, KEY, NESTED, VALUE = 2, 1, 2, 1, 2, 16
"""Numbers of protobuf fields: of a Record, of its HistoryRecord and of an item of that."""


def read_run_file(path: Path, file: IO[bytes]) -> Table:
    """The history of a run."""
    builder = TableBuilder()
    for message in _records(path, file):
        try:
            for field, value in fields(message):
                if field == HISTORY and isinstance(value, bytes):
                    builder.add_record(_row(value))
        except DamagedMessageError:
            raise RequestError(f"{path}: not a W&B run file, or damaged.") from None
    return builder.finish()


def _row(history: bytes) -> dict[str, float | str]:
    row: dict[str, object] = {}
    for field, value in fields(history):
        if field == ITEM and isinstance(value, bytes):
            key, content = _item(value)
            row[key] = content
        elif field == STEP and isinstance(value, bytes):
            row.setdefault(
                "_step", next((number for inner, number in fields(value) if inner == 1 and isinstance(number, int)), None)
            )
    return numbers(row)


def _item(message: bytes) -> tuple[str, object]:
    """Key and value of one item."""
    key, nested, text = "", [], ""
    for field, value in fields(message):
        if isinstance(value, bytes):
            content = value.decode("utf-8", errors="replace")
            key = content if field == KEY else key
            text = content if field == VALUE else text
            if field == NESTED:
                nested.append(content)
    try:
        return key or ".".join(nested), json.loads(text)
    except (ValueError, RecursionError):
        return key or ".".join(nested), None


def _records(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """The messages of the file; what is incomplete at the end of a run in progress is left out."""
    if file.read(HEADER)[:4] != IDENT:
        raise RequestError(f"{path}: not a W&B run file, or damaged.")
    at, parts = HEADER, bytearray()
    while True:
        left = BLOCK - at % BLOCK
        if left < HEADER:
            file.read(left)
            at += left
        head = file.read(HEADER)
        if len(head) < HEADER:
            return
        length, kind = struct.unpack("<HB", head[4:])
        data = file.read(length)
        at += HEADER + length
        if len(data) < length or (kind == 0 and not length):
            return
        if kind not in (FULL, FIRST, MIDDLE, LAST):
            raise RequestError(f"{path}: not a W&B run file, or damaged.")
        if kind in (FULL, FIRST):
            parts.clear()
        parts += data
        if kind in (FULL, LAST):
            yield bytes(parts)
