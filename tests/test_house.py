"""The house: who may import whom, what is public, and that importing does nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import eureka

SOURCE = Path(eureka.__file__).parent

ANYONE = {"errors", "registry", "files", "formats", "group", "random_state", "spreadsheet", "stranger", "thinning", "uncompiled"}
BELOW: dict[str, set[str]] = {
    "curves": set(),
    "presence": set(),
    "runs": {"presence"},
    "schedules": set(),
    "attention": {"schedules"},
    "data": set(),
    "tasks": {"data", "runs"},
    "models": {"attention"},
    "patching": {"attention"},
    "probes": {"attention", "patching", "runs"},
    "starts": {"attention", "patching", "probes"},
    "forks": set(),
    "doctor": {"attention", "curves", "forks", "patching", "probes", "runs", "starts"},
    "racing": {"curves", "forks", "patching", "probes", "starts"},
    "capture": {"curves", "doctor", "forks", "racing"},
    "training": {"tasks", "probes", "schedules", "runs"},
    "testing": {"attention", "tasks"},
    "config": {"attention", "tasks", "models", "training"},
    "experiment": {
        *("config", "testing", "attention", "data", "tasks", "models", "patching", "probes", "starts", "training"),
        *("schedules", "runs"),
    },
    "recipes": {"config"},
    "study": {"config", "experiment", "recipes", "training", "curves", "runs"},
    "report": {"attention", "curves", "doctor", "models", "runs", "study", "tasks"},  # of parts the names alone, without torch
    "integrations": {"curves", "doctor", "forks", "patching", "probes", "racing", "runs"},
    "snapshots": {"config", "experiment", "forks", "tasks", "probes", "training", "runs"},
}
ABOVE = {"bench", "cli"}  # they may import everything; nobody imports them


def imports(path: Path) -> set[str]:
    """The rooms of our own house that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("eureka.") and name.count(".")}
    return found


def rooms() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).with_suffix("").parts[0]
        if room not in ("__init__", "__main__"):
            found.setdefault(room, []).append(path)
    return found


@pytest.mark.parametrize("room", sorted(set(rooms()) - ANYONE - ABOVE))
def test_every_package_imports_only_what_the_table_allows(room: str) -> None:
    for path in rooms()[room]:
        beyond = imports(path) - {room} - ANYONE - BELOW[room]
        assert not beyond, f"{path.relative_to(SOURCE)} imports {sorted(beyond)}"


def test_probes_need_one_module_of_patching() -> None:
    lines = [line for path in rooms()["probes"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert {line.split()[1] for line in lines if line.startswith("from eureka.patching")} == {"eureka.patching.attach"}


def test_what_everyone_imports_imports_nothing_of_ours_but_errors() -> None:
    for room in ANYONE:
        for path in rooms()[room]:
            assert imports(path) <= {"errors"}


def test_the_table_has_no_cycle() -> None:
    seen: set[str] = set()
    while left := {room for room in BELOW if room not in seen}:
        ready = {room for room in left if BELOW[room] <= seen}
        assert ready, f"these import each other: {sorted(left)}"
        seen |= ready


def test_the_check_of_imports_can_fail(tmp_path: Path) -> None:
    guilty = tmp_path / "guilty.py"
    guilty.write_text("def f():\n    from eureka.cli.main import main\n")
    assert imports(guilty) == {"cli"}


def private_names(path: Path) -> set[str]:
    """Names with a leading underscore that a file takes from others."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
            found.add(node.attr)
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_benchmarks_use_public_names_only() -> None:
    files = list((Path(__file__).parents[1] / "benchmarks").rglob("*.py"))
    assert files
    assert {path.name: names for path in files if (names := private_names(path))} == {}


def test_the_check_of_private_names_can_fail(tmp_path: Path) -> None:
    guilty = tmp_path / "guilty.py"
    guilty.write_text("from eureka.bench.attention import _batch\nloop._save()\nself._own()\n")
    assert private_names(guilty) == {"_batch", "_save"}


def test_the_public_names_are_frozen_and_exist() -> None:
    expected = [
        "AttentionProbe",
        "ClearStart",
        "Diagnosis",
        "EurekaError",
        "EurekaMoment",
        "Finding",
        "OnlineDetector",
        "Operator",
        "Race",
        "Remedy",
        "RequestError",
        "RunConfig",
        "RunResult",
        "Setup",
        "attach",
        "attend",
        "attention_to",
        "clear_start",
        "detect",
        "diagnose",
        "find_plateaus",
        "induction_scores",
        "linear_probes",
        "make_operator",
        "patch",
        "position_share",
        "race",
        "read_curve",
        "read_log",
        "recipe",
        "run",
        "run_config",
        "write_report",
    ]
    assert sorted(eureka.__all__) == sorted(expected) == dir(eureka)
    for name in expected:
        assert getattr(eureka, name) is not None


def test_only_the_top_level_is_lazy() -> None:
    lazy = [
        path for path in SOURCE.rglob("*.py") if re.search(r"^def __getattr__", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert lazy == [SOURCE / "__init__.py"]


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'detekt'"):
        eureka.detekt  # noqa: B018


HEAVY = ("torch", "transformers", "ray", "plotly", "sklearn", "scipy", "pydantic", "numpy")


def heavy_modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


def test_importing_eureka_loads_nothing_heavy() -> None:
    assert (
        heavy_modules_after("import eureka, eureka.attention, eureka.tasks, eureka.study, eureka.report, eureka.training")
        == set()
    )


def test_the_command_line_loads_nothing_heavy_before_it_must() -> None:
    assert heavy_modules_after("import eureka.cli.main") == set()


def test_detect_needs_no_torch() -> None:
    assert "torch" not in heavy_modules_after("import eureka; eureka.detect([1.0] * 50 + [0.1] * 50)")


def test_the_check_of_heavy_imports_can_fail() -> None:
    assert "torch" in heavy_modules_after("import eureka; eureka.make_operator")


CONTRIBUTING = (SOURCE.parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_file_that_the_walks_name_exists() -> None:
    walks = CONTRIBUTING.split("## How the code is laid out")[1].split("## What we ask of a change")[0]
    named = re.findall(r"`([\w/]+(?:\.py|\.html\.j2|/))`", walks)
    assert len(named) > 40
    missing = [name for name in named if not (SOURCE / name).exists() and not (SOURCE.parent.parent / name).exists()]
    assert not missing


def test_every_package_is_in_the_table_of_contributing() -> None:
    table = CONTRIBUTING.split("| where |")[1].split("###")[0]
    private = {"schedules", "bench"}
    assert not [room for room in rooms() if room not in private and f"`{room}/`" not in table and f"`{room}.py`" not in table]


def test_no_walk_is_longer_than_ten_lines() -> None:
    for walk in CONTRIBUTING.split("### The walk")[1:]:
        assert len(re.findall(r"^\d+\. ", walk.split("\n## ")[0], flags=re.MULTILINE)) <= 10
