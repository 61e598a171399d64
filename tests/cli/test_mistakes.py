"""A user's mistake gets one sentence on standard error, exit code 2 and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eureka.cli.start import main


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
    (["compare", "tiles", "--set", "training.seed=4"], "--set training.seed: here --seeds chooses it; leave out one of the two."),
    (["compare", "tiles", "--set", "attention.name=qr"], "--set attention.name: here --fix chooses it"),
    (["compare", "tiles", "--start", "clear", "--set", "model.start=paper"], "--set model.start: here --start chooses it"),
    (["compare", "small/main_resnet9", "--start", "paper,clear"], "--start paper,clear: model 'resnet9' has no attention"),
    (["fixes", "show", "cleer"], "unknown fix or start 'cleer'; did you mean 'clear'?"),
    (["compare", "tiles", "--lr", "1e-3", "--set", "training.lr=1"], "--set training.lr: here --lr chooses it"),
    (["compare", "tiles", "--out", "/proc/eureka"], "cannot make the folder /proc/eureka"),
    (["compare", "tiles", "--on", "moon"], "--on moon"),
    (["run", "tiles", "--set", "training.steps"], "--set training.steps: expected KEY=VALUE"),
    (["run", "tiles", "--set", "training.stepps=3"], "did you mean 'training.steps'?"),
    (["run", "tiles", "--set", "steps=3"], "unknown config key 'steps'"),
    (["run", "tiles", "--set", "training.steps=-3"], "steps = -3 should be greater than 0"),
    (["run", "tiles", "--set", "attention.name=softmaxx"], "unknown fix 'softmaxx'; did you mean 'softmax'?"),
    (["run", "tiles", "--set", "model.heads=3"], "model.dim (64) must be a multiple of model.heads (3)"),
    (["run", "digits", "--set", "model.patch=5"], "a patch of 5×5 does not divide a picture of 16×16"),
    (["report", "no-such-folder"], "no-such-folder is not a folder."),
    (["report", "."], "no run"),
    (["compare", "tiles", "--budget", "soon"], "--budget soon: expected a time such as 90s, 45m or 2h."),
    (["compare", "tiles", "--on", "local:3"], "--on local:3: the choices are 'local', 'ray' and 'ray:ADDRESS'."),
    (["study", "none.yaml"], "cannot read none.yaml: No such file or directory."),
    (["study", "status"], "no folder was given"),
    (["study", "status", "."], ". holds no runs."),
    (["study", "a.yaml", "there"], "unexpected argument there"),
    (["comparre", "tiles"], "No such command 'comparre'. Did you mean 'compare'?"),
    (["compare"], "Missing argument 'RECIPE'."),
    (["compare", "tiles", "--sed", "3"], "No such option: --sed"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to be in; the command line's handler of SIGTERM is put back afterwards."""
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES, ids=[" ".join(arguments) for arguments, _ in MISTAKES])
def test_a_mistake_is_one_sentence(
    arguments: list[str], sentence: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["eureka", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    output, errors = capsys.readouterr()
    assert (exit_.value.code, output) == (2, "")
    assert sentence in errors
    assert errors.startswith("eureka: ")
    assert errors.count("\n") == 1
    assert not list(here.rglob("config.json")), "nothing is begun"


def test_a_mistake_in_a_process_of_its_own_is_the_same_sentence(tmp_path: Path) -> None:
    done = eureka("compare", "tyles", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("eureka: unknown recipe 'tyles'; did you mean 'tiles'? Known: ")


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
    verbs = (
        "compare",
        "study",
        "run",
        "detect",
        "report",
        "recipes",
        "fixes",
        "tasks",
        "data",
        "bench",
        "bench attention",
        "data fetch",
    )
    for verb in ("", *verbs):
        done = eureka(*verb.split(), "--help", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    from importlib.metadata import version

    assert eureka("--version", cwd=tmp_path).stdout == f"eureka {version('eureka-moments')}\n"
