"""What the modules of a script do besides computing: a forward pass that prints or writes files does so on copies, too."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_LISTENERS: list[list[str]] = []
"""Those who want to know of files that are opened for writing; an audit hook cannot be taken away again."""


@contextlib.contextmanager
def noticed_effects() -> Iterator[list[str]]:
    """Hide what is printed inside; afterwards the list says, in sentences, what was printed or written."""
    _listen()
    told: list[str] = []
    files: list[str] = []
    printed = io.StringIO()
    _LISTENERS.append(files)
    try:
        with contextlib.redirect_stdout(printed):
            yield told
    finally:
        _LISTENERS.remove(files)
        if printed.getvalue():
            told.append("The model prints in its forward pass; of copies that is not shown.")
        if files:
            more = f" and {len(set(files)) - 1} more" if len(set(files)) > 1 else ""
            told.append(f"The model writes files in its forward pass ({files[0]}{more}), and its copies write them, too.")


@functools.cache
def _listen() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _LISTENERS or event != "open":
        return
    path, mode, flags = arguments
    if isinstance(path, str | bytes) and (flags & WRITES or (isinstance(mode, str) and set(mode) & set("wax+"))):
        name = os.fsdecode(path)
        if name != os.devnull and not name.endswith(".pyc"):
            for files in _LISTENERS:
                files.append(name)
