"""Without a tape: fork the process, change one thing in each child, and let the script's own loop go on there for some steps.

For scripts whose steps cannot be replayed, such as those that an environment or a custom autograd.Function takes part in. What
children would write, delete, start or connect to is refused to them; losses come back over a pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import shutil
import signal
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch.optim import Optimizer

from eureka.capture.first_step import confine, forbid_side_effects
from eureka.capture.watch import Watch, Watched
from eureka.formats import listing
from eureka.racing.verdict import Verdict, has_leapt, in_words, judge

STEPS = 40
ARM_SECONDS = 120.0
"""After this time an arm is ended with the losses that it has."""
WAIT = "wait"
RATES = {"rate_x10": 10.0, "rate_x100": 100.0, "rate_tenth": 0.1, "rate_hundredth": 0.01}
LOSS = struct.Struct("d")


@dataclass(frozen=True)
class Forked:
    """What the arms came to."""

    losses: dict[str, list[float]]
    verdicts: tuple[Verdict, ...]
    summary: str
    endings: tuple[str, ...]
    """why arms ended before their last step"""
    seconds: float

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """A table: the arm, its steps, its last loss, and the verdict."""
        wait = self.losses[WAIT]
        last = f"{wait[-1]:.4g}" if wait else ""
        rows: list[tuple[str, ...]] = [(WAIT, str(len(wait)), last, "", "")]
        for one in self.verdicts:
            losses = self.losses[one.name]
            cells = one.cells()
            rows.append((one.name, str(len(losses)), f"{losses[-1]:.4g}" if losses else "", cells[2], cells[4]))
        return rows

    def __str__(self) -> str:
        head = ("arm", "steps", "loss", "better by", "")
        widths = [max(len(row[i]) for row in [head, *self.rows]) for i in range(len(head))]
        table = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in [head, *self.rows]]
        return "\n".join([*table, "", self.summary, *self.endings])

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON value."""
        return {
            "losses": {name: [loss if isfinite(loss) else None for loss in losses] for name, losses in self.losses.items()},
            "verdicts": [one.to_json() for one in self.verdicts],
            "summary": self.summary,
            "notes": list(self.endings),
            "seconds": self.seconds,
        }


def why_not() -> str:
    """Return why this process cannot be forked, in a sentence; nothing if it can."""
    if not hasattr(os, "fork"):
        return "this system has no fork."
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "a process that uses CUDA cannot be forked."
    if workers := multiprocessing.active_children():
        return f"the script has {len(workers)} worker processes, whose queues its forks would read from, too: set num_workers=0."
    return ""


def warning() -> str:
    """Return what cannot be kept from forks, in sentences."""
    threads = [one.name for one in threading.enumerate() if one is not threading.main_thread() and not one.name.startswith(OURS)]
    missing = f" They lack the script's threads ({listing(threads[:3])})." if threads else ""
    return SHARED + missing


OURS = "eureka"
"""How threads of ours are called."""
SHARED = (
    "Forks share what is open already: what the script writes to an open file or connection may be written by every"
    " fork. New files, deletions, programs and connections are refused to them."
)


def fork_arms(watch: Watch, main: Watched, *, steps: int = STEPS, seconds: float = ARM_SECONDS) -> Forked | None:
    """Run the arms one after the other; returns in the parent. In a child it returns None, and the script's loop goes on.

    Args:
        watch: what tells the losses
        main: the optimiser whose rate is changed
        steps: how many each arm makes
        seconds: how long each may take
    """
    begun = time.monotonic()
    losses: dict[str, list[float]] = {}
    endings = []
    for name, factor in {WAIT: 1.0, **RATES}.items():
        scratch = Path(tempfile.mkdtemp(prefix="eureka-"))
        reader, writer = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _become_arm(watch, main, factor, steps, writer, scratch)
            return None
        os.close(writer)
        losses[name], ending = _collected(reader, child, steps, seconds)
        shutil.rmtree(scratch, ignore_errors=True)
        if ending:
            endings.append(f"{name} {ending}")
    verdicts = tuple(
        judge(
            name,
            f"{factor:g} times the learning rate",
            losses[name],
            losses[WAIT],
            remedies=len(RATES),
            leapt=len(losses[name]) if has_leapt(losses[name], losses[WAIT]) else None,
            skipped="" if losses[name] and losses[WAIT] else "it made no step",
        )
        for name, factor in RATES.items()
    )
    return Forked(losses, verdicts, in_words(verdicts, losses[WAIT]), tuple(endings), time.monotonic() - begun)


def _collected(reader: int, child: int, steps: int, seconds: float) -> tuple[list[float], str]:
    """Read a child's losses; return them, and why there are fewer than wanted."""
    content, deadline = b"", time.monotonic() + seconds
    ending = ""
    while len(content) < steps * LOSS.size:
        ready, _, _ = select.select([reader], [], [], max(deadline - time.monotonic(), 0.0))
        if not ready:
            ending = f"was ended after {seconds:.0f} s."
            break
        if not (piece := os.read(reader, 65536)):
            break
        content += piece
    os.close(reader)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found = [one for (one,) in LOSS.iter_unpack(content[: len(content) // LOSS.size * LOSS.size])]
    if not ending and len(found) < steps:
        ending = (
            f"ended by itself after {len(found)} steps (the script ended, or wanted to write, start or connect to something)."
        )
    return found, ending


def _become_arm(watch: Watch, main: Watched, factor: float, steps: int, writer: int, scratch: Path) -> None:
    """In a child: change the rate, send each loss, and end after the last step; only in `scratch` it may write."""
    torch.set_num_threads(1)  # a forked child hangs in torch's pool of threads
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    confine(scratch)
    forbid_side_effects(scratch)
    optimizer = main.optimizer
    assert optimizer is not None
    _multiply_rate(optimizer, factor)
    made = 0

    def send(watched: Watched) -> None:
        nonlocal made
        if watched is main and watched.curve:
            made += 1
            os.write(writer, LOSS.pack(watched.curve[-1][1]))
            if made >= steps:
                end_arm()

    watch.become(send)


def end_arm() -> NoReturn:
    """End a child at once: nothing of the script's runs that would write or close what the parent shares."""
    os._exit(0)


def _multiply_rate(optimizer: Optimizer, factor: float) -> None:
    """Train at a multiple of the rate; between steps the script and its scheduler see the rate that they set."""

    def multiply(by: float) -> Callable[..., None]:
        def change(*_: Any) -> None:
            for group in optimizer.param_groups:
                group["lr"] = group["lr"] * by

        return change

    optimizer.register_step_pre_hook(multiply(factor))
    optimizer.register_step_post_hook(multiply(1.0 / factor))
