"""What an attack on a command did: it may succeed, or say in a sentence why not, within bounds of time and memory."""

from __future__ import annotations

import contextlib
import io
import logging
import resource
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

SECONDS = 10
"""Processor time of one attack, at most."""
MEGABYTES = 500
"""Memory that all attacks together may take on top of what the process has."""

Attack = Callable[[], int]
"""Returns the exit code that a command would have."""


class HangsError(Exception):
    """An attack took too long."""


def _hangs(*_: Any) -> None:
    raise HangsError


def command(*words: str) -> Attack:
    """`eureka WORDS` in this process."""

    def attack() -> int:
        from eureka.cli.main import run_command

        before, sys.argv = sys.argv, ["eureka", *words]
        try:
            return run_command()
        finally:
            sys.argv = before

    return attack


def outcome(attack: Attack) -> str:
    """``done``, ``refused``, or what went wrong: a traceback, another exit code, a warning, a sentence that is none."""
    out, err = io.StringIO(), io.StringIO()
    before = signal.signal(signal.SIGPROF, _hangs)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            code = attack()
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
        logging.disable(logging.NOTSET)
    if code not in (0, 1, 2) or "Traceback" in err.getvalue():
        return f"exit {code} with {err.getvalue()}"
    return "done" if code == 0 else "refused" if err.getvalue().strip() else f"exit {code} without a word"


def memory() -> float:
    """The most memory that the process ever had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def failures(attacks: Iterable[tuple[str, Attack]]) -> tuple[Counter[str], Sequence[str]]:
    """How many were done and refused, and what went wrong in the others."""
    found: Counter[str] = Counter()
    wrong = []
    for name, attack in attacks:
        result = outcome(attack)
        found[result if result in ("done", "refused") else "failed"] += 1
        if result not in ("done", "refused"):
            wrong.append(f"{name}: {result}")
    return found, wrong
