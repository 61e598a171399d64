"""The example package, installed as a user would: its fix is listed, compared and keeps the contract."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

OWN_FIX = Path(__file__).parents[2] / "examples" / "own_fix"
TINY = ["training.steps=8", "training.warmup=2", "training.batch_size=8", "training.validation_samples=16", "model.dim=16"]

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the package was installed: without a network, and not into the environment of the tests."""
    target, source = tmp_path_factory.mktemp("installed"), tmp_path_factory.mktemp("source") / "own_fix"
    subprocess.run(["cp", "-r", OWN_FIX, source], check=True)  # setuptools writes beside what it builds
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", target, source], check=True, timeout=120)
    return target


@pytest.fixture
def command(installed: Path, tmp_path: Path) -> Command:
    """``python -m eureka … --json`` where the package is installed; the document that it prints."""
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*words: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "eureka", *words, "--json"],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_the_fix_of_an_installed_package_is_listed_with_its_source(command: Command) -> None:
    listed = {entry["name"]: entry for entry in command("fixes")["fixes"]}
    assert listed["log_length"] == {
        "name": "log_length",
        "summary": "softmax(q·k · log n / (log length · √d)), n the number of visible keys",
        "source": "own-fix",
    }
    assert list(listed)[-1] == "log_length"  # ours come first


def small(command: str) -> list[str]:
    words = shlex.split(command)[1:]
    return [*words, *(word for change in TINY for word in ("--set", change))] if words[0] in ("compare", "run") else words


def test_every_command_of_its_readme_runs_and_the_fix_appears_in_the_comparison(command: Command) -> None:
    readme = (OWN_FIX / "README.md").read_text(encoding="utf-8")
    listing, comparison, run = (command(*small(line)) for line in re.findall(r"^eureka .*$", readme, flags=re.MULTILINE))
    assert "log_length" in [fix["name"] for fix in listing["fixes"]]
    assert [row["fix"] for row in comparison["rows"]] == ["softmax", "log_length"]
    assert not comparison["failures"]
    assert run["config"]["attention"] == {"name": "log_length", "length": 32}


def test_its_own_tests_pass(installed: Path) -> None:
    path = os.pathsep.join([str(installed), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(OWN_FIX), str(OWN_FIX / "tests")]
    subprocess.run([sys.executable, *words], check=True, timeout=120, env=os.environ | {"PYTHONPATH": path})
