"""Logs in JSON: JSON Lines, lists of objects, objects of lists, and the history in a ``trainer_state.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from eureka.curves.readers.columns import UNNAMED, VALUE, is_like, is_metric, rank
from eureka.curves.readers.numbers import LARGEST as LARGEST_NUMBER
from eureka.curves.readers.numbers import number
from eureka.curves.readers.table import Table, TableBuilder
from eureka.errors import RequestError
from eureka.formats import plural

LONGEST = 1 << 25
"""Bytes of the longest line of JSON Lines."""
LARGEST = 1 << 28
"""Bytes of the largest JSON document."""
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
STRAY = 0.01
"""Lines that may be no JSON, such as one that a crash cut short before the run went on."""
DEPTH = 8
"""Objects inside objects that are looked into."""

Record = dict[str, Any]


def flat(record: Record, prefix: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Any]]:
    """Nested objects as keys with dots.

    >>> dict(flat({"step": 1, "train": {"loss": 2.0}}))
    {'step': 1, 'train.loss': 2.0}
    """
    for key, value in record.items():
        if isinstance(value, dict) and depth:
            yield from flat(value, f"{prefix}{key}.", depth - 1)
        else:
            yield prefix + str(key), value


def numbers(record: Record) -> dict[str, float | str]:
    """The numbers of a record, and its texts, which may tell records apart."""
    found: dict[str, float | str] = {}
    for key, value in record.items():
        kind = type(value)
        if (kind is float or kind is int) and -LARGEST_NUMBER < value < LARGEST_NUMBER:  # most are: the rest takes longer
            found[key] = float(value)
        elif kind is list and len(value) == 1:
            found |= _others({key: value[0]})
        elif value is not None:
            found |= _others({key: value})
    return found


def _others(record: Record) -> dict[str, float | str]:
    """Numbers in texts and in objects, and texts."""
    found: dict[str, float | str] = {}
    for key, value in flat(record):
        real = number(value, "thousands")  # JSON has decimal points
        if real == real:
            found[key] = real
        elif isinstance(value, str) and value:
            found[key] = value[:100]
    return found


def table_of(records: Iterable[Record]) -> Table:
    builder = TableBuilder()
    for record in records:
        builder.add_record(numbers(record))
    return builder.finish()


def read_json_lines(path: Path, file: IO[bytes]) -> Table:
    """One JSON object a line; an incomplete last line, as of a run in progress, is left out, and so are a few that are none."""
    builder, wrong, place = TableBuilder(), list[int](), 0
    while line := file.readline(LONGEST):
        place += 1
        if not line.strip():
            continue
        record = _object(line)
        if record is None:
            wrong.append(place)
        else:
            builder.add_record(numbers(record))
        if len(wrong) > max(1.0, STRAY * place):
            raise RequestError(f"{path}: line {wrong[0]} is not a JSON object.")
    stray = [at for at in wrong if at < place or place == 1]
    if len(stray) > STRAY * place:
        raise RequestError(f"{path}: line {stray[0]} is not a JSON object.")
    if stray:
        builder.notes.append(
            f"{plural(len(stray), 'line')} that {'is' if len(stray) == 1 else 'are'} not JSON left out, the first is {stray[0]}"
        )
    return builder.finish()


def read_records(files: Mapping[str, Path]) -> Table:
    """Files with one record each, by names that end with their number."""
    objects = {name: _object(file.read_bytes()) or {} for name, file in files.items()}
    rows = sorted(objects.items(), key=lambda one: int(one[0].rpartition("_")[2]))
    return table_of({"epoch": int(name.rpartition("_")[2]), **record} for name, record in rows)


def _object(line: bytes) -> Record | None:
    try:
        record = json.loads(line.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def read_json(path: Path, file: IO[bytes]) -> Table:
    """A list of objects, an object of lists, or Hugging Face's ``trainer_state.json``, whose ``log_history`` is such a list."""
    content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise RequestError(f"{path}: a JSON document of more than {LARGEST:,} bytes; write one object a line (JSON Lines).")
    text = content.decode("utf-8-sig", errors="replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        document = _one_after_the_other(text)
        if document is None:
            raise RequestError(f"{path}: not a JSON document ({error}).") from None
    records = _records(path, document)
    if records is None:
        raise RequestError(f"{path}: holds no log; expected a list of objects, or an object with a log_history.")
    return table_of(records)


def _one_after_the_other(text: str) -> list[Any] | None:
    """Several objects in one text, each over several lines; the last may be cut short, as of a run in progress."""
    found: list[Any] = []
    decoder, place = json.JSONDecoder(), 0
    try:
        while place < len(text):
            value, place = decoder.raw_decode(text, place)
            found.append(value)
            place += len(text[place : place + 100]) - len(text[place : place + 100].lstrip(", \t\r\n"))
    except (ValueError, RecursionError):
        pass
    return found if len(found) > 1 else None


def _records(path: Path, document: Any) -> Iterable[Record] | None:
    """The records of a document: a list of them, lists as columns, the same for several runs by name, or values by step."""
    if isinstance(document, list):
        return _rows(path, document)
    if not isinstance(document, dict) or not document:
        return None
    for name in ("log_history", "history", "metrics", "logs", "records"):
        if isinstance(document.get(name), list) and (rows := _rows(path, document[name])) is not None:
            return rows
    series = dict(_series(document))
    if series:
        return [row for name, inside in series.items() for row in _columns(path, {"metric": name, **inside})]
    if len(document) > 1 and all(isinstance(run, dict) and _lists(run) for run in document.values()):
        return [row for run, inside in document.items() for row in _columns(path, {"run": str(run), **inside})]
    if all(number(key) == number(key) and not isinstance(value, (dict, list)) for key, value in document.items()):
        return [{"step": number(key), "value": value} for key, value in document.items()]
    if numbered := _numbered(document):
        return numbered
    if _lists(document):
        return _columns(path, document)
    inner = (value for _, value in flat(document) if isinstance(value, list) and value)
    return next((rows for value in inner if (rows := _rows(path, value)) is not None), None)


def _numbered(document: Record) -> list[Record]:
    """Records by their number, as in ``{"epoch_0": {"loss": 3.2}, …}``; the word before it is the counter, if it is one."""
    keys = [re.fullmatch(r"(?P<word>.*?)[ _-]?(?P<number>\d+)", key) for key in document]
    if len(keys) < 2 or not all(keys) or not all(isinstance(value, dict) and numbers(value) for value in document.values()):
        return []
    found = [(key["word"], float(key["number"])) for key in keys if key is not None]
    name = found[0][0] if rank(found[0][0]) is not None else "step"
    return [{name: count, **inside} for (_, count), inside in zip(found, document.values(), strict=True)]


def _series(document: Record, prefix: str = "", depth: int = DEPTH) -> Iterator[tuple[str, Record]]:
    """Objects that hold the steps and the values of one metric, by the names that lead to them (Sacred, ClearML)."""
    for key, inside in document.items():
        if not isinstance(inside, dict) or not depth:
            continue
        lists = {name: value for name, value in inside.items() if isinstance(value, list) and value}
        steps = next((name for name in lists if rank(name) is not None), None)
        values = next((name for name in lists if is_like(name, VALUE)), None)
        if steps is not None and values is not None:
            yield f"{prefix}{key}", {"step": lists[steps], UNNAMED: lists[values]}
        else:
            yield from _series(inside, f"{prefix}{key} ", depth - 1)


def _lists(record: Record) -> dict[str, list[Any]]:
    """The lists of plain values in a record."""
    return {
        key: value for key, value in flat(record) if isinstance(value, list) and value and not isinstance(value[0], (dict, list))
    }


def _columns(path: Path, record: Record) -> Iterator[Record]:
    """A record with lists as records, one for each place in them; its texts go with each."""
    lists = _lists(record)
    if len({len(value) for value in lists.values()}) > 1:
        found = ", ".join(f"{key}: {len(value)}" for key, value in list(lists.items())[:6])
        raise RequestError(f"{path}: its lists have different lengths ({found}); a curve and its steps must be equally long.")
    texts = {key: value for key, value in record.items() if isinstance(value, str)}
    return ({**texts, **dict(zip(lists, row, strict=True))} for row in zip(*lists.values(), strict=True))


def _rows(path: Path, items: list[Any]) -> Iterable[Record] | None:
    """A list as records: of objects, of numbers, or of lists of numbers (TensorBoard's wall time, step and value)."""
    if not items:
        return None
    if all(isinstance(one, dict) for one in items):
        several = all(len(value) > 1 for value in _lists(items[0]).values()) and _lists(items[0])
        single = any(is_metric(key) and not isinstance(value, list) for key, value in flat(items[0]))
        return [row for one in items for row in _columns(path, one)] if several and not single else items
    if all(one is None or isinstance(one, (int, float)) for one in items):
        return [{"value": one} for one in items]
    if all(isinstance(one, list) and len(one) == len(items[0]) for one in items) and len(items[0]) in (2, 3):
        names = ("step", "value") if len(items[0]) == 2 else ("wall time", "step", "value")
        return (dict(zip(names, row, strict=True)) for row in items)
    return None
