"""A worker that stays: it imports everything once, then carries out the runs that it is told, one after the other.

``python -m eureka.study.staying fork|own PARENT`` reads the path of a run folder from each line of standard input, as JSON, and
answers on standard output: ``began PID``, then ``ended CODE stays`` or ``ended CODE leaves``.

fork   Each run is a child, forked from this process. What a run breaks, leaks or holds ends with it, and the next one begins with
       everything imported and with the data in memory. Forking is safe as long as this process has one thread; it computes
       nothing but what loading data needs, and OMP_NUM_THREADS is 1.
own    Where forking is not safe (macOS) or not there (Windows), runs are carried out in this process. It leaves after a failure,
       after a run with a part that is not ours, and after some runs; the pool then starts another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, Protocol

from eureka.runs import RunFolder
from eureka.study.worker import LOOK_SECONDS, carry_out, config_of, stop_without

STOPPED = 128 + signal.SIGTERM
"""The exit code of a run that was asked to stop."""
RUNS = 50
"""How many runs a process that does not fork carries out before it leaves."""


Tell = Callable[[str], object]


class Way(Protocol):
    """How a run is carried out."""

    def carry_out(self, folder: RunFolder) -> tuple[int, bool]:
        """The exit code of a run, and whether this process can carry out another."""


def stay(way: str, parent: int) -> int:
    """Carry out runs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    warm_up()
    forking, own = Forking(answers.write) if way == "fork" else None, Own(answers.write, parent)
    for line in iter(sys.stdin.readline, ""):
        chosen: Way = forking if forking and has_one_thread() else own
        code, stays = chosen.carry_out(RunFolder(Path(json.loads(line))))
        answers.write(f"ended {code} {'stays' if stays else 'leaves'}\n")
        if not stays:
            break
    return 0


def has_one_thread() -> bool:
    """Whether nothing else in this process could hold a lock while it forks; where the system does not tell, Python does."""
    try:
        return len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208 - a generator of names is all that is needed
    except OSError:
        return threading.active_count() == 1


def warm_up() -> None:
    """Import and look up what every run needs; torch loads a good part of itself only when an optimiser is made."""
    import filelock  # noqa: F401
    from PIL import Image
    from torch import nn

    from eureka.experiment import environment
    from eureka.training import loop  # noqa: F401
    from eureka.training.config import TrainingConfig
    from eureka.training.optimiser import make_optimiser

    make_optimiser(nn.Linear(1, 1), TrainingConfig()).zero_grad()
    Image.preinit()
    environment()


@contextlib.contextmanager
def output_to(log: Path) -> Iterator[None]:
    """While inside, standard output and error are the log of a run."""
    kept = os.dup(1), os.dup(2)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for before, here in zip(kept, (1, 2), strict=True):
            os.dup2(before, here)
            os.close(before)


def logged(folder: RunFolder) -> int:
    """Carry out a run; whatever goes wrong is in its log. The exit code."""
    folder.check_links()
    with output_to(folder.worker_log):
        try:
            return carry_out(folder)
        except Exception:
            traceback.print_exc()
            return 1


class Forking:
    """A child for each run."""

    def __init__(self, tell: Tell) -> None:
        self.tell, self.child = tell, 0
        self.loaded: list[Any] = []
        """the tasks whose data is in memory"""
        signal.signal(signal.SIGTERM, self._stop)

    def carry_out(self, folder: RunFolder) -> tuple[int, bool]:
        self._load_data(folder)
        until_end, child_end = os.pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the child is known, or has its own handler
        parent, self.child = os.getpid(), os.fork()
        if self.child == 0:
            _be_child(folder, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.close(child_end)
        self.tell(f"began {self.child}\n")
        code = self._wait(until_end)
        self.child = 0
        os.close(until_end)
        return code, code != STOPPED

    def _load_data(self, folder: RunFolder) -> None:
        """Load the data of a task of ours, for this and every later run. What fails here fails again, and is told, in the run."""
        with contextlib.suppress(Exception):
            task = config_of(folder).task
            if not task.entry.foreign and task.to_json() not in self.loaded:
                self.loaded.append(task.to_json())
                task.build()

    def _wait(self, until_end: int) -> int:
        """The exit code of the child, negative for a signal. When the pool is gone, standard input ends: then the child stops."""
        watched = [until_end, sys.stdin.fileno()]
        while True:
            found, status = os.waitpid(self.child, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            ready, _, _ = select.select(watched, [], [], LOOK_SECONDS)
            if until_end in ready:  # the child ends now; or it has a child of its own that lives on, hence the loop
                watched = [each for each in watched if each != until_end]
                time.sleep(0.001)
            if sys.stdin.fileno() in ready:
                watched = [each for each in watched if each != sys.stdin.fileno()]
                _ask_to_stop(self.child)

    def _stop(self, _signum: int, _frame: FrameType | None) -> None:
        """Pass a SIGTERM on to the run, which saves its state; without a run, end."""
        if not self.child:
            os._exit(STOPPED)
        _ask_to_stop(self.child)


def _be_child(folder: RunFolder, parent: int) -> NoReturn:
    """Carry out a run and end, whatever happens."""
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        stop_without(parent)
        code = logged(folder)
    finally:
        os._exit(code)  # what the worker itself would do at its end is not for a run to do


def _ask_to_stop(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)  # a run that is paused saves its state, too


class Own:
    """Runs in this process."""

    def __init__(self, tell: Tell, parent: int) -> None:
        self.tell, self.parent, self.done = tell, parent, 0

    def carry_out(self, folder: RunFolder) -> tuple[int, bool]:
        if not self.done:
            stop_without(self.parent)
        self.tell(f"began {os.getpid()}\n")
        code = logged(folder)
        self.done += 1
        return code, code == 0 and self.done < RUNS and not _is_foreign(folder)


def _is_foreign(folder: RunFolder) -> bool:
    """Whether a part of the run is not ours, so that nobody knows what it leaves behind."""
    config = config_of(folder)
    return any(part.entry.foreign for part in (config.task, config.model, config.attention))


if __name__ == "__main__":
    sys.exit(stay(sys.argv[1], int(sys.argv[2])))
