"""Logs of a run, a record a line: written while it trains, and read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from eureka.errors import DamagedRunError, WorkError
from eureka.runs.parsing import T, parsed, unreadable
from eureka.runs.probe_records import ProbeRecord
from eureka.runs.records import Metrics


class RecordLog:
    """A log of records while it is written: every line is whole on disk before training goes on.

    It knows its size, so that a resumed run can cut off what came after its checkpoint. Of several processes of one run only the
    first writes; the others count along.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.size = 0

    def open(self, size: int) -> None:
        """Go on after the first `size` bytes; the lines behind them will be logged again."""
        if self.writes:
            try:
                self._cut(size)
            except OSError as error:
                raise unreadable(self.path, error) from None
        self.size = size

    def _cut(self, size: int) -> None:
        self.path.touch()
        if self.path.stat().st_size < size:
            raise DamagedRunError(f"{self.path} is shorter than its checkpoint knows; move the run folder away to start again.")
        with self.path.open("r+b") as file:
            file.truncate(size)

    def append(self, record: Metrics | ProbeRecord) -> None:
        """Write one line."""
        line = json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
        if self.writes:
            self._write(line)
        self.size += len(line)

    def _write(self, line: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise WorkError(f"cannot write {self.path}: {error.strerror}; run again to go on from the last checkpoint.") from None


def read_lines(path: Path, kind: type[T], size: int | None = None) -> list[T]:
    """The whole lines of a log, or those in its first `size` bytes; a last line that was torn by a kill is left out."""
    try:
        lines = path.read_bytes()[:size].split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(path, error) from None
    return [parsed(line, kind, f"{path}: line {number}") for number, line in enumerate(lines[:-1], start=1)]


def read_metrics(path: Path, size: int | None = None) -> list[Metrics]:
    """The lines of a log of metrics, whose steps must rise; of the whole log or of its first `size` bytes."""
    return list(iterate_metrics(path, size))


def iterate_metrics(path: Path, size: int | None = None) -> Iterator[Metrics]:
    """The same, line by line; a last line that was torn by a kill is left out."""
    step, left = -1, math.inf if size is None else size
    try:
        with path.open("rb") as file:
            for place, line in enumerate(file, start=1):
                left -= len(line)
                if left < 0 or not line.endswith(b"\n"):
                    return
                found = parsed(line, Metrics, f"{path}: line {place}")
                if found.step <= step:
                    raise DamagedRunError(
                        f"{path}: line {place} is of step {found.step} and comes after step {step}; move the run folder away to"
                        " start again."
                    )
                step = found.step
                yield found
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(path, error) from None
