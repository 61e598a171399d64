"""Training scripts in processes of their own that a fork server starts: torch is imported only once."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import runpy
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(
    [
        *("torch", "torch._dynamo", "sklearn.datasets", "sklearn.model_selection", "pytest", __name__),
        *("eureka.capture.session", "eureka.cli.main", "eureka.doctor.diagnose"),
    ]
)
SECONDS = 60.0
"""A script that takes longer hangs."""


# As a command


@dataclass
class Ended:
    """What a command has printed, and its exit code."""

    code: int | None
    """None: it was killed after its time"""
    output: str
    errors: str

    @property
    def said(self) -> list[str]:
        """What `eureka` itself says on standard error."""
        return [line.removeprefix("eureka: ") for line in self.errors.splitlines() if line.startswith("eureka: ")]


class Command:
    """A command that runs in `folder`: `eureka` with its arguments, or `python` with a script and its arguments."""

    def __init__(self, program: str, arguments: Sequence[str], folder: Path, **environment: str) -> None:
        self.streams = Path(tempfile.mkdtemp(dir=folder, prefix="streams-"))
        self.process = SERVER.Process(target=_command, args=(program, list(arguments), folder, environment, self.streams))
        self.process.start()

    def end(self) -> Ended:
        """Wait for it."""
        self.process.join(SECONDS)
        code = self.process.exitcode
        self.process.kill()
        self.process.join()
        texts = [(self.streams / name).read_text(encoding="utf-8") for name in ("output", "errors")]
        shutil.rmtree(self.streams)
        return Ended(code, *texts)


def eureka(*arguments: object, folder: Path, **environment: str) -> Ended:
    """Run `eureka` in a folder, which also keeps its state, and wait for it."""
    state = {"XDG_STATE_HOME": str(folder / "state")}
    return Command("eureka", [str(one) for one in arguments], folder, **state | environment).end()


def _command(program: str, arguments: list[str], folder: Path, environment: dict[str, str], streams: Path) -> None:
    for number, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(streams / name, os.O_WRONLY | os.O_CREAT), number)
    faulthandler.dump_traceback_later(0.9 * SECONDS)  # where it hangs
    os.environ.update(environment)
    tempfile.tempdir = None  # it is read again from TMPDIR
    os.chdir(folder)
    if program == "eureka":
        sys.argv = ["eureka", *arguments]
        from eureka.cli.start import main

        main()
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).absolute().parent)
        runpy.run_path(arguments[0], run_name="__main__")


# Under a session


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
    faulthandler.dump_traceback_later(0.9 * SECONDS)  # where it hangs
    tempfile.tempdir = str(folder)  # where scripts save without --out
    try:
        _run(script, arguments, folder, at, steps, writer)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(1)


def _run(script: Path | str, arguments: list[str], folder: Path, at: int, steps: int, writer: Connection) -> None:
    import torch

    from eureka.capture.script import Script
    from eureka.capture.session import Captured, Session, When

    torch.set_num_threads(1)
    taped = Taped()

    def examine(captured: Captured) -> None:
        taped.loss_exact, taped.step_exact = captured.proof.loss_exact, captured.proof.step_exact
        taped.steps = captured.steps
        raise SystemExit(0)

    def refused(sentence: str, *, goes_on: bool) -> None:
        taped.refusals.append(sentence)
        raise SystemExit(1)

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
