"""What Ctrl-C and SIGTERM do to a command: one line, no traceback, nothing lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType
from typing import NoReturn

INTERRUPTED = "interrupted; run the same command again to go on."
SHOW_CURSOR = "\x1b[?25h"
"""A bar that is shown has hidden it."""


class Stopped(BaseException):
    """The command was asked to stop. Typer would make an exit without a word of a KeyboardInterrupt."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


def catch_signals() -> None:
    """The first signal is an exception, so that all is closed in order; a second one ends the process at once."""
    _on_signals(_stop)


def ignore_signals() -> None:
    """From here on the process ends by itself."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)


@contextmanager
def stop_event() -> Iterator[Event]:
    """An event that Ctrl-C sets, or a polite request to end; a second Ctrl-C ends the process as always."""
    stop = Event()
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for one, handler in before.items():
            signal.signal(one, handler)

    def end(_: int, __: FrameType | None) -> None:
        stop.set()
        restore()

    for one in before:
        signal.signal(one, end)
    try:
        yield stop
    finally:
        restore()


def _on_signals(handler: Callable[[int, FrameType | None], NoReturn]) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # as nohup and background jobs want it
            signal.signal(signum, handler)


def _stop(signum: int, _frame: FrameType | None) -> NoReturn:
    _on_signals(_end)
    raise Stopped(signum)


def _end(signum: int, _frame: FrameType | None) -> NoReturn:
    """Files are whole or absent, and workers stop by themselves."""
    cursor = SHOW_CURSOR if os.isatty(2) else ""
    os.write(2, f"{cursor}eureka: {INTERRUPTED}\n".encode())
    os._exit(128 + signum)
