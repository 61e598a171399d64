"""The README tells the truth: its commands and snippets run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks, check_shell, inline_commands, lines, own_state, reduced, write_log, write_script

README = (ROOT / "README.md").read_text(encoding="utf-8")

STUCK = """
import torch

def my_function():
    model = torch.nn.Linear(4, 2)
    batches = [(x, x[:, :2].argmax(dim=1)) for x in torch.randn(8, 16, 4)]
    loss = lambda model, batch: torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
    return {"model": model, "batches": batches, "loss": loss, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
"""


def commands() -> set[str]:
    """Those of blocks and those within sentences."""
    shown = [line for block in blocks(README) if block.language == "sh" for line in lines(block)]
    return {line for line in shown if line.startswith("eureka ")} | set(inline_commands(README))


def run_eureka(command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    process = [sys.executable, "-m", "eureka", *reduced(shlex.split(command)[1:])]
    return subprocess.run(process, cwd=cwd, capture_output=True, text=True, timeout=300, env=own_state(cwd))


@pytest.mark.parametrize("command", sorted(commands()))
def test_every_command_of_the_readme_runs(command: str, tmp_path: Path) -> None:
    write_log(tmp_path)
    write_script(tmp_path)
    (tmp_path / "my_module.py").write_text(STUCK)
    done = run_eureka(command, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "snippet",
    [block.text for block in blocks(README) if block.language == "python"],
    ids=lambda snippet: snippet.strip().splitlines()[-1][:50],
)
def test_every_snippet_of_the_readme_runs_and_says_something(snippet: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(snippet, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_every_shell_block_of_the_readme_is_shell() -> None:
    for block in blocks(README):
        if block.language == "sh":
            check_shell(block.text)


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
