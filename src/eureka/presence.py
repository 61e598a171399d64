"""Who is at work in a folder: a file that the process at work touches again and again, so that any machine can read it."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from eureka.errors import WorkError
from eureka.files import write_whole

BEAT_SECONDS = 10.0
"""How often the file is touched."""
SILENCE_SECONDS = 90.0
"""A file that was not touched for so long is left over. File servers and clocks may be a minute behind."""


@contextlib.contextmanager
def present(path: Path) -> Iterator[None]:
    """Say in a file that this process is at work; the file is gone afterwards.

    A file that cannot be written changes nothing: the work goes on.
    """
    ended = threading.Event()
    with contextlib.suppress(WorkError):
        write_whole(
            path, json.dumps({"place": _place(), "pid": os.getpid()}).encode(), durable=False
        )  # nobody lives on after a power cut
    threading.Thread(target=_beat, args=(path, ended), daemon=True).start()
    try:
        yield
    finally:
        ended.set()
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _beat(path: Path, ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)


def is_present(path: Path) -> bool:
    """Whether the process that wrote the file is still there. On its own machine that is known at once, elsewhere after a while.

    Nothing is written, and no lock is taken.
    """
    try:
        silent = time.time() - path.stat(follow_symlinks=False).st_mtime
        content = path.read_bytes()
    except OSError:
        return False
    return abs(silent) < SILENCE_SECONDS and _may_live(content)


def _may_live(content: bytes) -> bool:
    """False if the process was of this machine and is gone."""
    try:
        found = json.loads(content)
        place, pid = found["place"], int(found["pid"])
    except (ValueError, TypeError, KeyError):
        return True
    if place != _place() or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def _place() -> str:
    """This machine since it was started, and what its process numbers count in: a container has its own."""
    parts = [platform.node()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip())
    with contextlib.suppress(OSError):
        parts.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(parts)
