"""What the shell offers after Tab is what there is, and costs no torch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from eureka.attention.registry import FIXES
from eureka.cli.completion import complete_data, complete_fixes, complete_key, complete_recipe, complete_starts, complete_task
from eureka.cli.key_names import KEY_NAMES
from eureka.config import PARTS
from eureka.recipes import RECIPES
from eureka.training.config import TrainingConfig

COMPLETE = "import sys; sys.argv = ['eureka']; from eureka.cli.start import main; main()"


def offered(line: str) -> tuple[list[str], str]:
    """What zsh would be offered for a line, and what was imported for it."""
    environment = os.environ | {"_EUREKA_COMPLETE": "complete_fish", "_TYPER_COMPLETE_ARGS": line}
    environment |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    command = [sys.executable, "-X", "importtime", "-c", COMPLETE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    return [one.split("\t")[0] for one in done.stdout.splitlines()], done.stderr


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("eureka compare ti", ["tiles"]),
        ("eureka compare tiles --fix softmax,norm", ["softmax,norm_softmax", "softmax,norm_softmax_var"]),
        ("eureka compare tiles --start paper,clear_", ["paper,clear_positions"]),
        ("eureka run tiles --set training.st", ["training.steps="]),
        ("eureka run tiles --set attention.name=qk_n", ["attention.name=qk_norm"]),
        ("eureka tasks show ind", ["induction"]),
        ("eureka fixes show ssm", ["ssmax"]),
        ("eureka data fetch fash", ["fashion_mnist"]),
        ("eureka wa", ["watch"]),
    ],
)
def test_the_shell_is_offered_what_begins_like_that_without_torch(line: str, expected: list[str]) -> None:
    found, imported = offered(line)
    assert found == expected
    assert "eureka.cli.main" in imported
    assert not [one for one in imported.splitlines() if one.endswith(("| torch", " torch"))]


def test_everything_that_there_is_is_offered() -> None:
    assert [name for name, _ in complete_recipe("")] == list(RECIPES)
    assert [name for name, _ in complete_fixes("")] == FIXES.names()
    assert [name for name, _ in complete_starts("")] == ["paper", "clear_positions", "clear"]
    assert {"tiles", "induction"} <= {name for name, _ in complete_task("")}
    assert "mnist" in {name for name, _ in complete_data("")}
    assert [name for name, _ in complete_key("")] == [f"{key}=" for key in KEY_NAMES]


def test_a_fix_is_not_offered_twice() -> None:
    assert "softmax,softmax" not in [name for name, _ in complete_fixes("softmax,")]


def test_all_keys_of_all_our_parts_are_known_to_the_shell() -> None:
    """If it fails, put what is missing into cli/key_names.py."""
    keys = {f"{part}.name" for part in PARTS} | {f"training.{key}" for key in TrainingConfig.model_fields}
    for part, registry in PARTS.items():
        for entry in registry.entries():
            if not entry.foreign:
                keys |= {f"{part}.{key}" for key in registry.schema(entry.name).model_fields}
    assert tuple(sorted(keys)) == KEY_NAMES
