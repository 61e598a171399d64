"""Runs a training script under a capture, in a process of its own that a fork server starts: torch is imported only once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    ["torch", "torch._dynamo", "sklearn.datasets", "sklearn.model_selection", "eureka.capture.session", __name__]
)
SECONDS = 60.0
"""A script that takes longer hangs."""


@dataclass
class Taped:
    """What the capture of a script came to."""

    loss_exact: bool = False
    step_exact: bool = False
    steps: int = 0
    refusals: list[str] = field(default_factory=list)
    ended: str = ""
    """how the script ended before anything was captured or refused"""


def tape(script: Path | str, arguments: Sequence[str], folder: Path, *, at: int, steps: int) -> Taped:
    """Return what comes of a script: a path, or the name of a module below `folder`; it writes and works there."""
    reader, writer = SERVER.Pipe(duplex=False)
    child = SERVER.Process(target=_tape, args=(script, list(arguments), folder, at, steps, writer))
    child.start()
    writer.close()
    try:
        if not reader.poll(SECONDS):
            return Taped(ended=f"nothing came in {SECONDS:.0f} s\n{_printed(folder)}")
        taped: Taped = reader.recv()
    except EOFError:
        child.join(SECONDS)
        taped = Taped(ended=f"exit code {child.exitcode}\n{_printed(folder)}")
    finally:
        reader.close()
        child.join(1.0)
        child.kill()
        child.join()
    return taped


def _printed(folder: Path) -> str:
    return (folder / "printed.txt").read_text(encoding="utf-8")[-2000:]


def _tape(script: Path | str, arguments: list[str], folder: Path, at: int, steps: int, writer: Connection) -> None:
    printed = os.open(folder / "printed.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    os.environ["TMPDIR"] = str(folder)  # where scripts save without --out
    try:
        _run(script, arguments, folder, at, steps, writer)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(1)


def _run(script: Path | str, arguments: list[str], folder: Path, at: int, steps: int, writer: Connection) -> None:
    import torch

    from eureka.capture.script import Script, StopScript
    from eureka.capture.session import Captured, Session, When

    torch.set_num_threads(1)
    taped = Taped()

    def examine(captured: Captured) -> None:
        taped.loss_exact, taped.step_exact = captured.proof.loss_exact, captured.proof.step_exact
        taped.steps = captured.steps
        raise StopScript(0)

    def refused(sentence: str, *, goes_on: bool) -> None:
        taped.refusals.append(sentence)
        raise StopScript(1)

    session = Session(When(step=at), examine, refused, steps=steps)
    session.start()
    os.chdir(folder)
    found = Script.find(None, script, arguments) if isinstance(script, str) else Script.find(script, None, arguments)
    code = found.run()
    if not taped.steps and not taped.refusals:
        sys.stdout.flush()
        taped.ended = f"the script ended with exit code {code}\n{_printed(folder)}"
    writer.send(taped)
    os._exit(0)
