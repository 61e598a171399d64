"""`eureka detect --watch`: follow logs that grow, and print what comes up in them."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from eureka.cli.on_event import OnEvent
from eureka.cli.options import as_json
from eureka.cli.signals import stop_event
from eureka.curves.examination import Examination
from eureka.curves.following import GrowingLog
from eureka.errors import RequestError

PAUSE = 0.5
"""Seconds between two looks at a log, at least."""
REST = 4.0
"""A pause is this many times as long as the work of a look, so that a long log does not keep a core busy."""


def watch_logs(files: Sequence[Path], examination: Examination, *, command: str | None, as_lines: bool) -> list[GrowingLog]:
    """Print events as they come until the user stops it with Ctrl-C, or the process is asked to end.

    command    a shell command for each event
    as_lines   print each event as one JSON document on a line
    """
    for file in files:
        if not file.exists() and not file.absolute().parent.is_dir():
            raise RequestError(f"{file}: there is no folder {file.parent} in which it could appear.")
    logs = [GrowingLog(file, examination) for file in files]
    on_event = OnEvent(command) if command is not None else None
    _say(f"watching {', '.join(map(str, files))}; Ctrl-C ends it with the verdict")
    with stop_event() as stop:
        said: dict[Path, str | None] = dict.fromkeys(files)
        pause = 0.0
        while not stop.wait(pause):
            begun = time.process_time()
            for log in logs:
                _look(log, on_event, as_lines=as_lines)
                if log.complaint is not None and log.complaint != said[log.path]:
                    _say(f"waiting: {log.complaint}")
                said[log.path] = log.complaint
            if on_event is not None:
                on_event.tend()
            pause = max(PAUSE, REST * (time.process_time() - begun))
    for log in logs:
        _look(log, on_event, as_lines=as_lines)
    if on_event is not None:
        on_event.close()
    return logs


def _look(log: GrowingLog, on_event: OnEvent | None, *, as_lines: bool) -> None:
    notices, remark = log.look()
    if remark is not None:
        _say(remark)
    for notice in notices:
        sys.stdout.write(as_json(notice.fields(), indent=None) if as_lines else f"{notice.sentence()}\n")
        sys.stdout.flush()
        if on_event is not None:
            on_event.start(notice.fields())


def _say(text: str) -> None:
    sys.stderr.write(f"eureka: {text}\n")
    sys.stderr.flush()
