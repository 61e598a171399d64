"""Files that are there whole or not at all, and a lock that ends with its process."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from eureka.errors import FolderBusyError, RequestError, WorkError


def make_folder(path: Path) -> None:
    """Make a folder and its parents; a failure is one sentence."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {path}: {error.strerror}; choose another with --out.") from None


def check_folder(path: Path) -> None:
    """Raise if `path` cannot become a file because of where it is."""
    if not path.parent.is_dir():
        raise RequestError(f"cannot write {path}: there is no folder {path.parent}.")
    if path.is_dir():
        raise RequestError(f"cannot write {path}: it is a folder.")


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write to a temporary name beside the file, then rename: a reader sees the old file or the new one, never a part.

    The file gets the mode that the user's umask gives, so that others can read a shared cache or study.

    durable   wait until the disk has it, so that it is there after a power cut as well. Without, a power cut may leave an empty
              file; a process that is killed loses nothing either way
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:  # x: a new file, so no link is followed
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise WorkError(f"cannot write {path}: {error.strerror}.") from None
        raise


@contextlib.contextmanager
def locked(path: Path, busy: str | None = None) -> Iterator[None]:
    """Hold the lock of a file; it ends with the process, however that ends.

    busy   the message of the error when another process holds the lock; without one, wait for it
    """
    from filelock import FileLock, Timeout

    if path.is_symlink():
        raise WorkError(f"cannot lock {path}: it is a link; remove it.")
    lock = FileLock(path, timeout=-1 if busy is None else 0)
    try:
        lock.acquire()
    except Timeout:
        raise FolderBusyError(str(busy)) from None
    except OSError as error:
        raise WorkError(f"cannot lock {path}: {error.strerror}.") from None
    try:
        yield
    finally:
        lock.release()
