"""Where in the user's own code something happens."""

from __future__ import annotations

import functools
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class Line:
    """A line of a file.

    >>> str(Line("/home/ada/train.py", 263))
    'train.py:263'
    """

    file: str
    number: int

    @property
    def path(self) -> Path:
        return Path(self.file)

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}"


def user_frame() -> FrameType | None:
    """Return the innermost frame of the caller's stack that is neither ours nor an installed package's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not _is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_line() -> Line | None:
    """Return the line that the user's own code is at, if any of it is on the stack."""
    frame = user_frame()
    return None if frame is None else Line(frame.f_code.co_filename, frame.f_lineno)


def name_in_script(value: Any) -> str:
    """Return what the user's code calls an object, or nothing: a local or global name on the stack."""
    frame: FrameType | None = user_frame()
    while frame is not None:
        if _is_users(frame.f_code.co_filename):
            for names in (frame.f_locals, frame.f_globals):
                for name, one in list(names.items()):
                    if one is value and not name.startswith("_"):
                        return name
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    return not file.startswith(("<frozen", "<string>", "<attrs", "<__array")) and not any(
        file.startswith(folder) for folder in _library_folders()
    )


@functools.cache
def _library_folders() -> tuple[str, ...]:
    installed = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return (*installed, str(Path(__file__).parents[1]))
