"""A log while it is written: every line whole on disk before training goes on."""

from __future__ import annotations

import json
from pathlib import Path

from eureka.errors import DamagedRunError, WorkError
from eureka.runs import Record, read_lines


class LineLog:
    """Appends JSON lines to a file; knows its size, so that a resumed run can cut off what came after its checkpoint.

    Of several processes of one run only the first writes; the others count along.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.size = 0

    def open(self, size: int) -> list[Record]:
        """Go on after the first `size` bytes, and give what they say; whatever is behind them will be logged again."""
        if self.writes:
            self.path.touch()
            if self.path.stat().st_size < size:
                raise DamagedRunError(
                    f"{self.path} is shorter than its checkpoint knows; move the run folder away to start again."
                )
            with self.path.open("r+b") as file:
                file.truncate(size)
        self.size = size
        return read_lines(self.path, size)

    def append(self, record: Record) -> None:
        """Write one line."""
        line = json.dumps(record).encode() + b"\n"
        if self.writes:
            self._write(line)
        self.size += len(line)

    def _write(self, line: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise WorkError(f"cannot write {self.path}: {error.strerror}; run again to go on from the last checkpoint.") from None
