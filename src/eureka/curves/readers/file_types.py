"""Which format a log is in, by its name and its first bytes; each file is opened once."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from eureka.curves.readers.delimited import read_table
from eureka.curves.readers.json_log import read_json, read_json_lines
from eureka.curves.readers.series import Log
from eureka.curves.readers.tensorboard import event_files, read_events
from eureka.errors import RequestError

Progress = Callable[[int], None]

HEAD = 1 << 16
"""Bytes by which a format is recognised."""
IN_A_FOLDER = ("metrics.jsonl", "trainer_state.json", "metrics.csv")
"""The names that our own runs, Hugging Face and Lightning give their logs."""


@contextmanager
def open_log(path: Path, progress: Progress | None = None) -> Iterator[Log]:
    """Open the log at a path, which is a file or a folder with one, in whatever format it is; `progress` is told bytes."""
    if path.is_dir():
        inside = next((path / name for name in IN_A_FOLDER if (path / name).is_file()), None)
        if inside is None and not event_files(path):
            raise RequestError(f"{path}: a folder without {', '.join(IN_A_FOLDER)} or TensorBoard event files.")
        if inside is None:
            yield read_events(path)
            return
        path = inside
    if not path.exists():
        raise RequestError(f"{path}: there is no such file.")
    try:
        with _open_binary(path) as file:
            yield _recognise(path, file, progress)
    except (OSError, EOFError, zlib.error) as error:  # also while the log is read: a damaged archive shows late
        raise RequestError(f"{path}: cannot be read ({error}).") from None


def _open_binary(path: Path) -> IO[bytes]:
    """The bytes of a file, unpacked if its name ends in ``.gz``."""
    return cast(IO[bytes], gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb"))


def _recognise(path: Path, file: IO[bytes], progress: Progress | None) -> Log:
    head = file.read(HEAD)
    if not head.strip():
        raise RequestError(f"{path}: is empty.")
    file.seek(0)
    name = path.name.removesuffix(".gz").lower()
    if "tfevents" in name:
        return read_events(path, file)
    if b"\0" in head:
        raise RequestError(f"{path}: is binary; expected CSV, JSON Lines, trainer_state.json or TensorBoard events.")
    start = head.lstrip()[:1]
    if name.endswith(".jsonl") or (start == b"{" and _is_record(head.lstrip().split(b"\n", 1)[0])):
        return read_json_lines(path, file)
    if start in (b"{", b"["):
        return read_json(path, file)
    return read_table(path, file, head, progress)


def _is_record(line: bytes) -> bool:
    """Whether a line is a whole JSON object of plain values: the first of JSON Lines."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and not any(isinstance(value, list) for value in record.values())
