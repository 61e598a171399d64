"""Run a command of the user's for each event, with the event in its environment; it can never hold up the watch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

SECONDS = 60.0
"""A command that takes longer is ended."""
GRACE = 5.0
"""Seconds that commands have left when the watch ends."""
MOST = 8
"""Commands at a time; for more events none is started."""


@dataclass(frozen=True)
class _Running:
    process: subprocess.Popen[bytes]
    since: float


class OnEvent:
    """Starts the command for each event. What it prints goes to standard error, so that our own output stays whole.

    The command is a line for the shell, as the user wrote it; what the log says reaches it only as variables.
    """

    def __init__(self, command: str, *, seconds: float = SECONDS) -> None:
        self.command, self.seconds = command, seconds
        self._running: list[_Running] = []

    def start(self, fields: Mapping[str, str | float | None]) -> None:
        """Run the command with ``EUREKA_EVENT``, ``EUREKA_STEP`` and so on."""
        self.tend()
        if len(self._running) >= MOST:
            _say(f"--on-event was not run for {fields['message']}: {MOST} commands are still at work")
            return
        told = {f"EUREKA_{name.upper()}": _text(value) for name, value in fields.items()}
        try:
            process = subprocess.Popen(
                self.command,
                shell=True,
                env=os.environ | told,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno(),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            _say(f"--on-event could not be run ({error})")
            return
        self._running.append(_Running(process, time.monotonic()))

    def tend(self) -> None:
        """Say which commands failed, and end those that hang."""
        for one in list(self._running):
            if one.process.poll() is None and time.monotonic() - one.since < self.seconds:
                continue
            self._running.remove(one)
            if one.process.poll() is None:
                _end(one.process)
                _say(f"--on-event took more than {self.seconds:g} s and was ended")
            elif one.process.returncode:
                _say(f"--on-event ended with exit code {one.process.returncode}")

    def close(self) -> None:
        """Give the commands that are at work a little time, then end them."""
        until = time.monotonic() + min(GRACE, self.seconds)
        while self._running and time.monotonic() < until:
            self.tend()
            time.sleep(0.02)
        self.seconds = 0.0
        self.tend()


def _text(value: str | float | None) -> str:
    """A variable cannot hold a NUL; what is not known is empty."""
    return "" if value is None else (f"{value:.10g}" if isinstance(value, float) else str(value).replace("\0", ""))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _say(text: str) -> None:
    sys.stderr.write(f"eureka: {text}\n")
    sys.stderr.flush()
