"""Which format a file is in, by its first bytes and its name; each file is opened once."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

from eureka.curves.readers.delimited import read_table
from eureka.curves.readers.json_log import BYTE_ORDER_MARK, numbers, read_json, read_json_lines
from eureka.curves.readers.layout import is_table
from eureka.curves.readers.table import Progress, Table
from eureka.curves.readers.tensorboard import read_events
from eureka.curves.readers.text_log import is_text_log, read_text
from eureka.curves.readers.wandb_file import IDENT, read_run_file
from eureka.errors import RequestError

HEAD = 1 << 16
"""Bytes by which a format is recognised."""
LONGEST_HEADER = 1 << 22
"""Bytes of the first two lines, at most."""
FIELDS = 20_000
"""Fields of one line of a table, at most."""
UNPACKED = 1 << 28
"""Bytes that a packed log may have, at most: a small file can hold any number of them."""
WIDE = 1 << 28
"""Bytes of the largest file in UTF-16: it is turned into UTF-8 as a whole."""
EXPECTED = "expected a table (CSV), JSON, JSON Lines, a text log, TensorBoard events or a W&B run file"
DOCUMENT = rb'\{\s*(?:"|\}|$)|\[\s*(?:[\[{"\]]|$|(?:-?[\d.]+(?:[eE][-+]?\d+)?|null|NaN)\s*[,\]]\s*+(?![A-Za-z]))'
"""How a JSON document begins; a line of a text log may begin with a bracket too."""
OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"version https://git-lfs", "is a Git-LFS pointer and not the file itself; fetch that with `git lfs pull`"),
    (b"PAR1", "is a Parquet file; save it as CSV, for example with pandas"),
    (b"SQLite format 3", "is an SQLite database, as of MLflow or Aim; export the metrics of a run as CSV"),
    (b"\x89HDF", "is an HDF5 file; save the curve as CSV"),
    (b"\x93NUMPY", "is a NumPy array; save it as text with numpy.savetxt"),
    (b"\xd0\xcf\x11\xe0", "is an old Excel workbook; save the sheet as CSV"),
    (b"ARROW1", "is an Arrow file; save it as CSV, for example with pandas"),
    (b"%PDF", "is a PDF; give the log itself"),
    (b"\x28\xb5\x2f\xfd", "is packed with Zstandard; unpack it first (or pack it with gzip)"),
    (b"<!DOCTYPE", "is a web page; give the log itself"),
    (b"<html", "is a web page; give the log itself"),
    (b"<?xml", "is an XML file; give the log itself, or export it as CSV"),
    (b"\x80\x02", "is a pickle, perhaps a PyTorch checkpoint; give the log of the run"),
    (b"\x80\x04", "is a pickle; save the curve as CSV or JSON"),
    (b"\x80\x05", "is a pickle; save the curve as CSV or JSON"),
)
"""Files that people have and that are no logs, by their first bytes, and what to do."""
ZIPS = {
    ".xlsx": "is an Excel workbook; save the sheet as CSV",
    ".ods": "is a spreadsheet; save the sheet as CSV",
    ".npz": "holds NumPy arrays; save them as text with numpy.savetxt",
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), "is a PyTorch checkpoint; give the log of the run"),
}


def read_file(path: Path, wanted: Sequence[str] = (), progress: Progress | None = None) -> Table:
    """The table in a file of whatever format; `progress` is told bytes."""
    if not path.exists():
        raise RequestError(f"{path}: there is no such file.")
    if not path.is_file():
        raise RequestError(f"{path}: is no regular file but a pipe, a device or a socket; save the log to a file first.")
    try:
        with path.open("rb") as raw:
            return _recognise(path, _unpacked(path, raw), wanted, progress)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError) as error:
        # also while the log is read: a damaged archive shows late
        raise RequestError(f"{path}: cannot be read ({error}).") from None


def _unpacked(path: Path, raw: IO[bytes]) -> IO[bytes]:
    """The log in a file that is packed, by its first bytes; a ZIP archive must hold nothing else."""
    start = raw.read(6)
    raw.seek(0)
    if path.suffix == ".gz" or start.startswith(b"\x1f\x8b"):
        return _bounded(path, gzip.open(raw, "rb"))
    if start.startswith(b"BZh"):
        return _bounded(path, bz2.open(raw, "rb"))
    if start.startswith(b"\xfd7zXZ"):
        return _bounded(path, lzma.open(raw, "rb"))
    if start.startswith(b"PK\x03\x04") and path.suffix.lower() not in ZIPS:
        archive = zipfile.ZipFile(raw)
        files = [one for one in archive.infolist() if not one.is_dir() and not one.filename.startswith("__MACOSX/")]
        if len(files) == 1 and not files[0].flag_bits & 1:  # not encrypted
            _check_size(path, files[0].file_size)
            return _bounded(path, archive.open(files[0]))
    return raw


def _check_size(path: Path, size: int) -> None:
    if size > UNPACKED:
        raise RequestError(f"{path}: unpacks to more than {UNPACKED:,} bytes; unpack it first if it is a log.")


class Bounded(io.RawIOBase):
    """A file that is unpacked while it is read, up to a size."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path, self.file = path, file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def readinto(self, buffer: Any) -> int:
        content = self.file.read(len(buffer))
        _check_size(self.path, self.file.tell())
        buffer[: len(content)] = content
        return len(content)


def _bounded(path: Path, file: Any) -> IO[bytes]:
    return cast(IO[bytes], io.BufferedReader(Bounded(path, file), 1 << 16))


def _recognise(path: Path, file: IO[bytes], wanted: Sequence[str], progress: Progress | None) -> Table:
    head = file.read(HEAD)
    while head.count(b"\n") < 2 and len(head) < LONGEST_HEADER and (more := file.read(HEAD)):
        head += more
    _check_content(path, head)
    _refuse(path, head)
    file.seek(0)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or _is_wide(head):
        file = _narrow(path, file, head)
        head = file.read(HEAD)
        _check_content(path, head)
        file.seek(0)
    if head.startswith(IDENT):
        return read_run_file(path, file)
    if "tfevents" in path.name.lower():
        return read_events([(path, file)])
    if b"\0" in head:
        raise RequestError(f"{path}: is binary; {EXPECTED}.")
    return _read_text_format(path, file, head, wanted, progress)


def _read_text_format(path: Path, file: IO[bytes], head: bytes, wanted: Sequence[str], progress: Progress | None) -> Table:
    name, start = re.sub(r"\.(gz|bz2|xz|zip)$", "", path.name.lower()), head.removeprefix(BYTE_ORDER_MARK).lstrip()
    first, _, others = start.partition(b"\n")
    if name.endswith(".jsonl") or (start[:1] == b"{" and others.strip() and _is_record(first)):
        return read_json_lines(path, file)
    text = is_text_log(head)
    if re.match(DOCUMENT, start) and not (text and start[:1] == b"[" and not re.match(rb"\[\s*[\[{]", start)):
        return read_json(path, file)
    _check_width(path, head)
    if is_table(head, text):
        return read_table(path, file, head, progress)
    table = read_text(file, wanted, progress)
    if not table.numeric:
        raise RequestError(f"{path}: holds no numbers of a log; {EXPECTED}.")
    return table


def _check_content(path: Path, head: bytes) -> None:
    if not head.removeprefix(BYTE_ORDER_MARK).strip():
        raise RequestError(f"{path}: is empty.")


def _check_width(path: Path, head: bytes) -> None:
    """Refuse a table that is too wide before each of its fields is looked at."""
    fields = max(line.count(mark) + 1 for line in head.splitlines() for mark in (b",", b"\t", b";", b"|"))
    if fields > FIELDS:
        raise RequestError(f"{path}: has a line of {fields:,} fields; a log has at most {FIELDS:,}.")


def _refuse(path: Path, head: bytes) -> None:
    """Say what a file is that is no log."""
    for start, what in OTHERS:
        if head.startswith(start):
            raise RequestError(f"{path}: {what}.")
    if head.startswith(b"PK\x03\x04"):
        raise RequestError(f"{path}: {ZIPS.get(path.suffix.lower(), 'is a ZIP archive; unpack it first')}.")
    if path.suffix.lower() == ".ipynb":
        raise RequestError(f"{path}: is a notebook; save the output of its training as text.")


def _is_wide(head: bytes) -> bool:
    """Whether every other byte is 0, as in English text in UTF-16."""
    sample = head[:400]
    return len(sample) > 8 and (sample[::2].count(0) > 0.4 * len(sample) or sample[1::2].count(0) > 0.4 * len(sample))


def _narrow(path: Path, file: IO[bytes], head: bytes) -> IO[bytes]:
    """A file in UTF-16, as PowerShell writes it, in UTF-8."""
    content = file.read(WIDE + 1)
    if len(content) > WIDE:
        raise RequestError(f"{path}: a text in UTF-16 of more than {WIDE:,} bytes; save it in UTF-8.")
    coding = "utf-16" if head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-16-le" if head[1:2] == b"\0" else "utf-16-be"
    return io.BytesIO(content.decode(coding, errors="replace").encode())


def _is_record(line: bytes) -> bool:
    """Whether a line is a whole JSON object with a number in it: the first of JSON Lines."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(record, dict) and any(isinstance(value, float) for value in numbers(record).values())
