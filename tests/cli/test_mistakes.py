"""A user's mistake gets one sentence on standard error, exit code 2 and no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def eureka(*arguments: str, cwd: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eureka", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=timeout)


MISTAKES: list[tuple[list[str], str]] = [
    (["compare", "tyles"], "unknown recipe 'tyles'; did you mean 'tiles'?"),
    (["run", "nothing/like/it"], "unknown recipe 'nothing/like/it'"),
    (["compare", "tiles", "--lr", "0"], "--lr 0: a learning rate must be above 0."),
    (["compare", "tiles", "--lr", "nan"], "--lr nan: a learning rate must be above 0."),
    (["compare", "tiles", "--lr", "fast"], "--lr fast: not a float."),
    (["compare", "tiles", "--lr", ","], "--lr names nothing"),
    (["compare", "tiles", "--seeds", "0"], "--seeds 0: at least one seed is needed."),
    (["compare", "tiles", "--seeds", "many"], "--seeds"),
    (["compare", "tiles", "--fix", "norm_sofmax"], "unknown fix 'norm_sofmax'; did you mean 'norm_softmax'?"),
    (["compare", "tiles", "--out", "/proc/eureka"], "cannot make the folder /proc/eureka"),
    (["compare", "tiles", "--on", "moon"], "--on moon"),
    (["run", "tiles", "--set", "training.steps"], "--set training.steps: expected KEY=VALUE"),
    (["run", "tiles", "--set", "training.stepps=3"], "did you mean 'training.steps'?"),
    (["run", "tiles", "--set", "steps=3"], "unknown config key 'steps'"),
    (["run", "tiles", "--set", "training.steps=-3"], "steps = -3 should be greater than or equal to 1"),
    (["run", "tiles", "--set", "attention.name=softmaxx"], "unknown fix 'softmaxx'; did you mean 'softmax'?"),
    (["run", "tiles", "--set", "model.heads=3"], "model.dim (64) must be a multiple of model.heads (3)"),
    (["run", "digits", "--set", "model.patch=5"], "a patch of 5×5 does not divide a picture of 16×16"),
    (["report", "no-such-folder"], "no-such-folder is not a folder."),
    (["report", "."], "no run"),
    (["comparre", "tiles"], "No such command 'comparre'. Did you mean 'compare'?"),
    (["compare"], "Missing argument 'RECIPE'."),
    (["compare", "tiles", "--sed", "3"], "No such option: --sed"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = eureka(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert sentence in done.stderr
    assert done.stderr.startswith("eureka: ")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("config.json")), "nothing is begun"


def test_an_unwritable_folder_is_one_sentence(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    if os.access(locked, os.W_OK):  # root may write anywhere: a file in the way serves as well
        locked.rmdir()
        locked.write_text("")
    done = eureka("compare", "tiles", "--out", str(locked / "study"), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("eureka: cannot make the folder")


def test_help_answers_everywhere(tmp_path: Path) -> None:
    for verb in ([], ["compare"], ["run"], ["detect"], ["report"], ["fixes"], ["bench"], ["bench", "attention"]):
        done = eureka(*verb, "--help", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    from importlib.metadata import version

    assert eureka("--version", cwd=tmp_path).stdout == f"eureka {version('eureka')}\n"
