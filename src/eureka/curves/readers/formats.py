"""Which format a path is in, by its name and its first bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from eureka.curves.readers.delimited import delimited
from eureka.curves.readers.files import head_of
from eureka.curves.readers.records import json_document, json_lines
from eureka.curves.readers.source import Source
from eureka.curves.readers.tensorboard import event_files, tensorboard
from eureka.errors import RequestError

Progress = Callable[[int], None]

IN_A_FOLDER: dict[str, Callable[[Path], Source]] = {
    "metrics.jsonl": json_lines,
    "trainer_state.json": json_document,
    "metrics.csv": delimited,
}
"""What our own runs, Hugging Face and Lightning call their logs."""


def open_source(path: Path, progress: Progress | None = None) -> Source:
    """Find out what a path is, and open it."""
    if path.is_dir():
        return _folder(path)
    head = head_of(path)
    name = path.name.removesuffix(".gz").lower()
    if "tfevents" in name:
        return tensorboard(path)
    if b"\0" in head:
        raise RequestError(f"{path}: is binary; expected CSV, JSON Lines, trainer_state.json or TensorBoard events.")
    start = head.lstrip()[:1]
    if name.endswith(".jsonl") or (start == b"{" and _is_record(head.lstrip().split(b"\n", 1)[0])):
        return json_lines(path)
    if start in (b"{", b"["):
        return json_document(path)
    return delimited(path, progress)


def _is_record(line: bytes) -> bool:
    """Whether a line is a whole JSON object of plain values: the first of JSON Lines."""
    try:
        record = json.loads(line)
    except ValueError:
        return False
    return isinstance(record, dict) and not any(isinstance(value, list) for value in record.values())


def _folder(path: Path) -> Source:
    for name, reader in IN_A_FOLDER.items():
        if (path / name).is_file():
            head_of(path / name)
            return reader(path / name)
    if event_files(path):
        return tensorboard(path)
    raise RequestError(f"{path}: a folder without {', '.join(IN_A_FOLDER)} or TensorBoard event files.")
