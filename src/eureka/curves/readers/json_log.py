"""Logs in JSON: JSON Lines, lists of objects, and the history in a ``trainer_state.json``."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from eureka.curves.readers.series import ROWS, Log, Series, number
from eureka.errors import RequestError

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


class Columns:
    """The numbers of records by key, with the rows that have them."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.rows = 0
        self.columns: dict[str, tuple[array[int], array[float]]] = {}
        for record in records:
            for key, value in flat(record).items():
                real = number(value)
                if real == real:  # NaN is not equal to itself
                    rows, values = self.columns.setdefault(key, (array("q"), array("d")))
                    rows.append(self.rows)
                    values.append(real)
            self.rows += 1

    def read(self, step: str, names: Sequence[str]) -> list[Series]:
        steps = np.arange(self.rows, dtype=float)
        if step != ROWS:
            steps = np.full(self.rows, np.nan)
            rows, values = self.columns[step]
            steps[np.asarray(rows)] = values
        series = []
        for name in names:
            rows, values = self.columns[name]
            series.append(Series())
            series[-1].add(steps[np.asarray(rows)], np.asarray(values))
        return series

    def log(self) -> Log:
        return Log(names=list(self.columns), read=self.read)


def read_json_lines(path: Path, file: IO[bytes]) -> Log:
    """One JSON object a line; an incomplete last line, as of a run in progress, is left out."""
    return Columns(_lines(path, file)).log()


def _lines(path: Path, file: IO[bytes]) -> Iterator[Record]:
    wrong: int | None = None
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


def read_json(path: Path, file: IO[bytes]) -> Log:
    """A list of objects, an object of lists, or Hugging Face's ``trainer_state.json``, whose ``log_history`` is such a list."""
    try:
        document = json.load(file)
    except ValueError as error:
        raise RequestError(f"{path}: not a JSON document ({error}).") from None
    records = _records(document)
    if records is None:
        raise RequestError(f"{path}: holds no log; expected a list of objects, or an object with a log_history.")
    return Columns(records).log()


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
