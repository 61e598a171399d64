"""Processes that carry out runs, as their parent sees them: start one, give it a run, hear what became of it, end it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from eureka.registry import FOLDER, user_folder
from eureka.runs import RunFolder

FORKS = sys.platform == "linux"
"""Whether a worker may fork its runs. The libraries of macOS may not be used after a fork, and Windows has none."""


@dataclass(frozen=True)
class News:
    """What a worker tells: its run has begun, or has ended with an exit code. The process may have ended as well."""

    worker: Worker
    code: int | None = None
    """of a run that has ended, negative for a signal"""
    gone: bool = False
    """whether the process carries out no other run"""


class Worker:
    """A process that stays and carries out one run at a time; see `eureka.study.staying`.

    news    where it puts what it hears
    first   its first run, whose log gets what the process says before it
    """

    def __init__(self, news: SimpleQueue[News], first: RunFolder, forks: bool = FORKS) -> None:
        self.run_pid: int | None = None
        """the process of the run at work"""
        first.check_links()
        # a session of its own: Ctrl-C reaches the parent alone, which then stops its workers in order
        with first.worker_log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "eureka.study.staying", "fork" if forks else "own", str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", FOLDER: user_folder()},
                start_new_session=True,
            )
        self._listener = threading.Thread(target=self._listen, args=(news,), daemon=True)
        self._listener.start()

    def begin(self, folder: RunFolder) -> bool:
        """Give it a run; whether the process was there to take it."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(str(folder.path)).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def _listen(self, news: SimpleQueue[News]) -> None:
        assert self.process.stdout is not None
        leaves = False
        for line in self.process.stdout:
            word, *rest = line.decode().split()
            if word == "began":
                self.run_pid = int(rest[0])
            elif word == "ended":
                self.run_pid, leaves = None, rest[1] == "leaves"
                news.put(News(self, int(rest[0]), gone=leaves))
        if not leaves:
            news.put(News(self, gone=True))

    def is_paused(self) -> int | None:
        """The process that is paused, if one of its two is."""
        return next((pid for pid in self._pids() if is_paused(pid)), None)

    def _pids(self) -> list[int]:
        return [self.process.pid] + ([self.run_pid] if self.run_pid is not None else [])

    def ask_to_stop(self) -> None:
        """Let the run save its state and end, also if it is paused; and the process with it."""
        self.process.terminate()
        if hasattr(signal, "SIGCONT"):
            for pid in filter(is_paused, self._pids()):
                os.kill(pid, signal.SIGCONT)
        self._hang_up()

    def kill(self) -> None:
        """End the process and its run at once."""
        if not hasattr(os, "killpg"):
            self.process.kill()
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def wait(self, seconds: float | None = None) -> int:
        """The exit code of the process once it has ended; `subprocess.TimeoutExpired` if it has not."""
        self._hang_up()
        code = self.process.wait(seconds)
        self._listener.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _hang_up(self) -> None:
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


def is_paused(pid: int) -> bool:
    """Whether a process was stopped by a signal, as Linux tells; elsewhere it is not known."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] in ("T", "t")
