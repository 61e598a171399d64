"""The README tells the truth: its commands and snippets run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SMALL = ["training.steps=30", "training.warmup=5", "training.batch_size=8", "training.validation_samples=32", "model.dim=16"]

STUCK = """
import torch

def my_function():
    model = torch.nn.Linear(4, 2)
    batches = [(x, x[:, :2].argmax(dim=1)) for x in torch.randn(8, 16, 4)]
    loss = lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    return {"model": model, "batches": batches, "loss": loss, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[str]:
    lines = [line.split("  #")[0].split("    #")[0].strip() for block in blocks("sh") for line in block.splitlines()]
    return [line for line in lines if line.startswith(program + " ")]


def inline_commands() -> list[str]:
    return re.findall(r"`(eureka [^`…]+)`", README)


def run_eureka(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    arguments = shlex.split(command)[1:]
    if arguments[0] in ("compare", "run"):
        arguments += [word for change in SMALL for word in ("--set", change)]
    if arguments[0] == "bench":
        arguments += ["--help"]
    process = [sys.executable, "-m", "eureka", *arguments]
    return subprocess.run(
        process, cwd=cwd, capture_output=True, text=True, timeout=300, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


@pytest.mark.parametrize("command", sorted({*commands("eureka"), *inline_commands()}))
def test_every_command_of_the_readme_runs(command: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    losses = np.r_[np.full(600, 2.0), np.linspace(2.0, 0.4, 40), np.full(400, 0.4)] + rng.normal(0, 0.02, 1040)
    (tmp_path / "loss.csv").write_text("step,loss\n" + "\n".join(f"{i},{loss:.5f}" for i, loss in enumerate(losses)) + "\n")
    (tmp_path / "my_module.py").write_text(STUCK)
    done = run_eureka(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("snippet", blocks("python"), ids=lambda snippet: snippet.strip().splitlines()[-1][:50])
def test_every_snippet_of_the_readme_runs_and_says_something(snippet: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_every_make_target_of_the_readme_and_contributing_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    texts = README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"^`?make (\w+)", texts, flags=re.MULTILINE))
    assert targets >= {"demo", "test", "setup", "bench"}
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_every_local_link_and_picture_exists() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "make test" in README
