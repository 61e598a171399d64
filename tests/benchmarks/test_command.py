"""Each benchmark is a command that answers a wrong request in one sentence."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["tasks", "training"])
def test_a_recipe_that_does_not_exist_is_one_sentence_and_nothing_is_measured(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--recipes", "tiles,tils", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("unknown recipe 'tils'; did you mean 'tiles'?")
    assert "Traceback" not in done.stderr
