"""Files as bytes, gzipped or not."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import IO, cast

from eureka.errors import RequestError

HEAD = 1 << 16


def open_binary(path: Path) -> IO[bytes]:
    """The bytes of a file; those inside it if its name ends in ``.gz``."""
    return cast(IO[bytes], gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb"))


def head_of(path: Path) -> bytes:
    """The first bytes of a file that exists, can be read and is not empty."""
    if not path.exists():
        raise RequestError(f"{path}: there is no such file.")
    try:
        with open_binary(path) as file:
            head = file.read(HEAD)
    except (OSError, EOFError) as error:
        raise RequestError(f"{path}: cannot be read ({error}).") from None
    if not head.strip():
        raise RequestError(f"{path}: is empty.")
    return head
