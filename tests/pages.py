"""Pages of Markdown whose blocks are run: in order, in one folder, reduced so that they take seconds."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import typer
import yaml

ROOT = Path(__file__).parent.parent
SMALL = {
    "training.steps": 30,
    "training.warmup": 5,
    "training.batch_size": 8,
    "training.validation_samples": 32,
    "model.dim": 16,
}
"""What every run of a page is reduced to."""
FEW_STEPS = 8
"""How far a race goes."""
ELSEWHERE = ("ray:", "/shared/")
"""A command with one of these needs a cluster: it is read by our command line, and not carried out."""
EARLY = ("--at", "5")
"""At which step a training script is looked at."""
SCRIPT = """\
import torch

torch.manual_seed(0)
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
for step in range(200):
    x = torch.randn(16, 8)
    loss = torch.nn.functional.cross_entropy(model(x), x[:, :4].argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
"""`train.py`, which takes any arguments."""
OTHER_PROGRAMS = {"pip", "torchrun", "sbatch", "squeue", "make", "cd", "tensorboard", "mkdocs", "python"}
"""Programs that are not ours: the line is checked as shell."""


@dataclass(frozen=True)
class Block:
    """A block of code with its language, and the file that it is, if the page says so."""

    language: str
    title: str
    text: str


def blocks(page: str) -> list[Block]:
    """All blocks of a page that have a language."""
    found = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', page, flags=re.MULTILINE | re.DOTALL)
    return [Block(*parts) for parts in found]


def lines(block: Block) -> list[str]:
    """The commands of a shell block, without their comments; a line that ends in a backslash goes on."""
    joined = block.text.replace("\\\n", " ")
    return [line for text in joined.splitlines() if (line := re.split(r"\s{2,}#", text)[0].strip()) and not line.startswith("#")]


def inline_commands(page: str) -> list[str]:
    """Commands of ours within sentences; one with an ellipsis or a word in capitals is a pattern, not a command."""
    found = re.findall(r"`(eureka [^`…]+)`", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    return [command for command in found if not re.search(r"\b[A-Z]{2,}\b", command)]


def run_page(page: str, folder: Path) -> int:
    """Run every block of a page in `folder`, which is the working directory; how many were run."""
    names: dict[str, Any] = {"__name__": "__page__"}
    found = blocks(page)
    for block in found:
        if block.language == "python":
            _python(block, folder, names)
        elif block.language == "yaml":
            (folder / block.title).write_text(reduced_study(block.text))
        elif block.language in ("sh", "bash"):
            check_shell(block.text)
            for line in lines(block) if block.language == "sh" else ():
                _command(line)
    return len(found)


def _python(block: Block, folder: Path, names: dict[str, Any]) -> None:
    code = compile(block.text, block.title or "a block of the page", "exec")
    needed = re.match(r"# needs (\w+)", block.text)
    if block.title:
        (folder / block.title).write_text(block.text)
    elif needed is None or importlib.util.find_spec(needed[1]) is not None:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, names)
        assert "print(" not in block.text or out.getvalue(), block.text


def check_shell(text: str) -> None:
    """Whether bash can read it; nothing is run."""
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


def _command(line: str) -> None:
    program, *words = [word for text in shlex.split(line) for word in expanded(text)]
    if program != "eureka":
        assert program in OTHER_PROGRAMS, line
    elif any(word in line for word in ELSEWHERE) or line in elsewhere_run():
        check_words(words)
    else:
        code, told = run_eureka(reduced(words)) if script_at(words) is None else run_script(reduced(words))
        assert code == 0, f"{line}: {told}"


@cache
def elsewhere_run() -> frozenset[str]:
    """The commands of the README, which its own tests run."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    return frozenset(line for block in blocks(page) if block.language == "sh" for line in lines(block))


def expanded(word: str) -> list[str]:
    """A pattern as the files that it matches, as a shell has it."""
    return [str(path) for path in sorted(Path().glob(word))] or [word] if "*" in word else [word]


def check_words(words: list[str]) -> None:
    """Whether our command line knows this verb with these options; nothing is run."""
    from eureka.cli.main import app

    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    if words or not command.params:  # a verb alone, in a sentence, is its name
        command.make_context("eureka", list(words))


def script_at(words: list[str]) -> int | None:
    """Where the training script, or -m, is in a command; what follows is the script's."""
    return next((place for place, word in enumerate(words) if word == "-m" or word.endswith(".py")), None)


def reduced(words: list[str]) -> list[str]:
    """The same command, so small that it takes seconds."""
    if (place := script_at(words)) is not None:
        is_race = words[0] == "race"
        own = [*EARLY, *(["--remedies", "rate_x10", "--steps", str(FEW_STEPS)] if is_race else ["--budget", "10s"])]
        return [*words[:place], *own, *words[place:]]
    if words[0] in ("compare", "run"):
        words = words + [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}")]
    if words[0] == "race":
        words = [*words, "--steps", str(FEW_STEPS)]
    if words[0] == "race" and ":" not in words[1]:
        words = [word for word in words if word != "--remedies" and "," not in word] + ["--remedies", "rate_x10"]
    if words[0] == "diagnose" and ":" in words[1]:
        words = [*words, "--budget", "2s"]
    if words[0] == "bench":
        words = [*words, "--help"]
    return words


def reduced_study(text: str) -> str:
    """A study file with the first value of everything."""
    study = yaml.safe_load(text)
    study["set"] = study.get("set", {}) | SMALL
    study["variants"] = study.get("variants", [{}])[:2]
    study["grid"] = {key: 1 if isinstance(values, int) else values[:1] for key, values in study["grid"].items()}
    return yaml.safe_dump(study)


def run_eureka(words: list[str]) -> tuple[int, str]:
    """The exit code of a command in this process, and all that it printed."""
    from eureka.cli.main import run_command

    before, sys.argv = sys.argv, ["eureka", *words]
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            return run_command(), out.getvalue()
    finally:
        sys.argv = before


def run_script(words: list[str]) -> tuple[int, str]:
    """The exit code of a command that runs a training script, in a process of its own, and all that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "eureka", *words], capture_output=True, text=True, timeout=300, env=own_state(Path.cwd())
    )
    return done.returncode, done.stdout + done.stderr


def own_state(folder: Path) -> dict[str, str]:
    """An environment in which nothing is remembered outside of a folder."""
    return os.environ | {"OMP_NUM_THREADS": "1", "XDG_STATE_HOME": str(folder / "state")}


@contextlib.contextmanager
def own_modules(folder: Path) -> Iterator[None]:
    """Modules that a page wrote are forgotten afterwards."""
    path = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]


def write_log(folder: Path) -> None:
    """`loss.csv`, which pages take as given: a plateau and a fall."""
    noise = np.random.default_rng(0).normal(0, 0.02, 1040)
    losses = np.r_[np.full(600, 2.0), np.linspace(2.0, 0.4, 40), np.full(400, 0.4)] + noise
    (folder / "loss.csv").write_text("step,loss\n" + "\n".join(f"{i},{loss:.5f}" for i, loss in enumerate(losses)) + "\n")


def write_script(folder: Path) -> None:
    """`train.py` and the module `my_package.train`, which pages take as given: a loop whose loss stands still."""
    (folder / "train.py").write_text(SCRIPT)
    (folder / "my_package").mkdir()
    (folder / "my_package/__init__.py").touch()
    (folder / "my_package/train.py").write_text(SCRIPT)
