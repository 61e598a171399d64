"""Without torch: what works, and what says in one sentence that it needs more."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import eureka

WITHOUT = "import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"
"""The beginning of a program for which these packages are not there."""
LIGHT = ("torch", "scipy", "sklearn", "PIL", "filelock", "httpx", "platformdirs", "yaml")
NEED_TORCH = [
    "compare tiles",
    "run tiles",
    "run tiles --help-config",
    "study study.yaml",
    "diagnose my_module:my_function",
    "diagnose my_module.py",
    "race my_module:my_function",
    "race my_module.py",
    "probe runs",
    "tasks show tiles",
    "data list",
    "bench attention",
]
NEED_NO_TORCH = [
    "--version",
    "--help",
    "detect loss.csv",
    "detect loss.csv --html page.html",
    "diagnose loss.csv",
    "recipes",
    "fixes",
    "tasks",
]
NO_TORCH_NAMES = {
    *("EurekaError", "EurekaMoment", "OnlineDetector", "RequestError", "detect", "find_plateaus", "read_curve", "read_log"),
    *("Diagnosis", "Finding", "RunConfig", "recipe", "run", "RunResult", "run_config", "Setup", "write_report"),
}
"""Public names that can be imported without torch. Some of them need it when they are called."""

TOLD = "this needs the package {package!r}: pip install 'eureka-moments[{extra}]'"


def python(program: str, folder: Path) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True, timeout=120
    ).stdout


def run_all(commands: list[str], folder: Path) -> dict[str, tuple[int, str]]:
    """The exit code and the messages of commands of a light installation."""
    (folder / "loss.csv").write_text("step,loss\n" + "\n".join(f"{i},{2.0 if i < 400 else 0.5}" for i in range(600)) + "\n")
    (folder / "study.yaml").write_text("recipe: tiles\nseeds: 1\n")
    (folder / "my_module.py").write_text(
        "def my_function():\n    return {'model': None, 'batches': [], 'loss': print, 'optimizer': None}\n"
    )
    (folder / "runs").mkdir()
    program = (
        WITHOUT.format(packages=LIGHT)
        + f"""
import contextlib, io, json
from eureka.cli.main import run_command
found = {{}}
for command in {commands!r}:
    sys.argv = ["eureka", *command.split()]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command()
    found[command] = (code, err.getvalue())
print(json.dumps(found))
"""
    )
    return {command: (code, told) for command, (code, told) in json.loads(python(program, folder)).items()}


def without_target(told: str) -> list[str]:
    """The lines of messages without the one that says what a target was taken for."""
    return [line for line in told.splitlines() if " is taken for a " not in line]


def test_every_verb_that_needs_torch_says_so_in_one_sentence(tmp_path: Path) -> None:
    for command, (code, told) in run_all(NEED_TORCH, tmp_path).items():
        assert code == 2, command
        (sentence,) = without_target(told)
        assert "pip install 'eureka-moments[torch]'" in sentence, command


def test_the_other_verbs_work_without_torch(tmp_path: Path) -> None:
    for command, (code, told) in run_all(NEED_NO_TORCH, tmp_path).items():
        assert (code, without_target(told)) == (0, []), command


def test_every_public_name_that_needs_torch_says_so(tmp_path: Path) -> None:
    program = (
        WITHOUT.format(packages=LIGHT)
        + """
import json, eureka
told = {}
for name in eureka.__all__:
    try:
        getattr(eureka, name)
    except eureka.EurekaError as error:
        assert isinstance(error, ImportError)
        told[name] = str(error)
print(json.dumps(told))
"""
    )
    told = json.loads(python(program, tmp_path))
    assert set(told) == set(eureka.__all__) - NO_TORCH_NAMES
    assert set(told.values()) == {TOLD.format(package="torch", extra="torch")}


@pytest.mark.parametrize(
    "module",
    ["eureka.integrations.monitor", "eureka.integrations.hugging_face", "eureka.integrations.lightning", "eureka.testing"],
)
def test_the_modules_that_people_import_say_so_too(module: str, tmp_path: Path) -> None:
    program = (
        WITHOUT.format(packages=LIGHT)
        + f"""
try:
    import {module}
except ImportError as error:
    print(type(error).__name__, error)
"""
    )
    assert python(program, tmp_path) == f"MissingExtraError {TOLD.format(package='torch', extra='torch')}\n"


def test_a_config_says_that_its_parts_need_torch(tmp_path: Path) -> None:
    program = (
        WITHOUT.format(packages=LIGHT)
        + """
import eureka
try:
    eureka.recipe("tiles")
except eureka.RequestError as error:
    print(error)
"""
    )
    assert python(program, tmp_path) == TOLD.format(package="torch", extra="torch") + "\n"


def test_a_module_that_no_extra_brings_is_an_ordinary_error(tmp_path: Path) -> None:
    program = (
        WITHOUT.format(packages=["numpy"])
        + """
import eureka
try:
    eureka.detect
except ModuleNotFoundError as error:
    print(type(error).__name__, error.name)
"""
    )
    assert python(program, tmp_path) == "ModuleNotFoundError numpy\n"


def test_the_report_names_the_extra_without_torch() -> None:
    from eureka.errors import missing_extra

    assert str(missing_extra(ModuleNotFoundError(name="scipy.stats"))) == TOLD.format(package="scipy", extra="report")
