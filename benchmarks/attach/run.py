"""Runs scripts under `eureka diagnose` and reads what it said of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import typer

SCRIPTS = Path(__file__).with_name("scripts")
STEP, PLANTED_STEP = 20, 100
"""At which step scripts are examined; one with a fault later, when it should have learned."""
SECONDS = 600
PACKAGES = {"pkg_train": "pkg_train.train"}
PROCESSES = {"ddp": 2}
"""Scripts that torchrun starts in several processes."""


@dataclass(frozen=True)
class Outcome:
    """What a diagnosis of a script came to."""

    name: str
    wanted: str
    """the cause that was planted; empty if none was"""
    document: dict[str, Any] = field(repr=False)
    said: str
    """on standard error, the last line of it"""
    seconds: float

    @property
    def captured(self) -> bool:
        return bool(self.document) and bool(self.document["script"]["loss_exact"])

    @property
    def found(self) -> str:
        """The likeliest cause, or why there is none."""
        return str(self.document["findings"][0]["cause"]) if self.document else self.said[:90]

    @property
    def right(self) -> bool:
        return bool(self.document) and self.found == (self.wanted or "healthy")

    @property
    def judged(self) -> str:
        """What is said of a row that is wrong."""
        return "" if self.right else "WRONG"

    def told(self, key: str) -> str:
        """Yes or no, of the capture."""
        return "" if not self.document else "yes" if self.document["script"][key] else "no"

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON value."""
        return {**asdict(self), "found": self.found, "right": self.right}


def names() -> list[str]:
    """Return the names of all scripts."""
    return sorted([*(one.stem for one in SCRIPTS.glob("*.py")), *PACKAGES])


def examine_scripts(only: str | None) -> Iterator[Outcome]:
    """Diagnose the scripts as they are."""
    for name in names():
        if only is None or only in name:
            yield examine(name, SCRIPTS, [], "")


def examine_planted(only: str | None) -> Iterator[Outcome]:
    """Diagnose the scripts with a fault each."""
    from benchmarks.attach.planted import PLANTED, edited

    for one in PLANTED:
        if only is not None and only not in one.name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / f"{one.script}.py").write_text(edited(one), encoding="utf-8")
            yield examine(one.script, Path(folder), one.args, one.cause, title=one.name, step=PLANTED_STEP)


def examine(name: str, folder: Path, arguments: Sequence[str], wanted: str, *, title: str = "", step: int = STEP) -> Outcome:
    """Diagnose one script, in a process of its own."""
    target = ["-m", PACKAGES[name]] if name in PACKAGES else [str(folder / f"{name}.py")]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES[name]}"] if name in PROCESSES else []
    command = [sys.executable, *launcher, "-m", "eureka", "diagnose", "--json", "--at", str(step), *target, *arguments]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as state:
        environment = {**os.environ, "XDG_STATE_HOME": state, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return Outcome(title or name, wanted, {}, f"not done in {SECONDS} s", time.monotonic() - begun)
    try:
        document = json.loads(done.stdout)
    except ValueError:
        document = {}
    ours = [line for line in done.stderr.splitlines() if line.startswith("eureka: ")]
    outcome = Outcome(title or name, wanted, document, ours[-1] if ours else done.stderr[-200:], time.monotonic() - begun)
    typer.echo(f"{outcome.name}: {outcome.found} ({outcome.seconds:.0f} s)", err=True)
    return outcome
