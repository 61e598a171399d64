"""Records (JSON objects) as a source: JSON Lines, lists of objects, and the history in a ``trainer_state.json``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from eureka.curves.readers.files import open_binary
from eureka.curves.readers.source import ROWS, Chunks, Source, finite, number
from eureka.errors import RequestError

CHUNK = 20_000
Record = dict[str, Any]


def flat(record: Record, prefix: str = "") -> Record:
    """Nested objects as keys with dots.

    >>> flat({"step": 1, "train": {"loss": 2.0}})
    {'step': 1, 'train.loss': 2.0}
    """
    out: Record = {}
    for key, value in record.items():
        if isinstance(value, dict):
            out |= flat(value, f"{prefix}{key}.")
        else:
            out[prefix + key] = value
    return out


def source(records: Callable[[], Iterable[Record]]) -> Source:
    """A source over records that can be read again and again."""
    names: dict[str, None] = {}
    for record in records():
        names.update({key: None for key, value in flat(record).items() if number(value) == number(value)})

    def series(name: str, step: str) -> Chunks:
        iterator, row = iter(records()), 0
        while chunk := [flat(record) for record in islice(iterator, CHUNK)]:
            values = np.array([number(record.get(name)) for record in chunk])
            steps = np.arange(row, row + len(chunk), dtype=float)
            if step != ROWS:
                steps = np.array([number(record.get(step)) for record in chunk])
            row += len(chunk)
            yield finite(steps, values)

    return Source(names=list(names), series=series)


def json_lines(path: Path) -> Source:
    """One JSON object a line; a last line cut short, as of a run that goes on, is left out."""
    return source(lambda: _lines(path))


def _lines(path: Path) -> Iterator[Record]:
    wrong: int | None = None
    with open_binary(path) as file:
        for place, line in enumerate(file, start=1):
            if wrong is not None:
                raise RequestError(f"{path}: line {wrong} is not a JSON object.")
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except ValueError:
                wrong = place
                continue
            if not isinstance(record, dict):
                raise RequestError(f"{path}: line {place} is not a JSON object.")
            yield record
    if wrong == 1:
        raise RequestError(f"{path}: line 1 is not a JSON object.")


def json_document(path: Path) -> Source:
    """A list of objects, an object of lists, or Hugging Face's ``trainer_state.json``, whose ``log_history`` is such a list."""
    with open_binary(path) as file:
        try:
            document = json.load(file)
        except ValueError as error:
            raise RequestError(f"{path}: not a JSON document ({error}).") from None
    records = _records(document)
    if records is None:
        raise RequestError(f"{path}: holds no log; expected a list of objects, or an object with a log_history.")
    return source(lambda: records)


def _records(document: Any) -> list[Record] | None:
    if isinstance(document, dict) and isinstance(document.get("log_history"), list):
        document = document["log_history"]
    if isinstance(document, list) and document and all(isinstance(one, dict) for one in document):
        return cast(list[Record], document)
    if isinstance(document, list) and document and all(isinstance(one, (int, float)) or one is None for one in document):
        return [{"value": one} for one in document]
    if isinstance(document, dict):
        lists = {key: value for key, value in document.items() if isinstance(value, list)}
        lengths = {len(value) for value in lists.values()}
        if len(lengths) == 1:
            return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        if lengths:
            raise RequestError(
                "its lists have different lengths (" + ", ".join(f"{k}: {len(v)}" for k, v in lists.items()) + ")."
            )
    return None
