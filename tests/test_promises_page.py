"""Every promise of docs/promises.md names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NAMED = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/promises.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_the_test_that_holds_a_promise_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_row_names_its_test() -> None:
    rows = [line for line in (ROOT / "docs/promises.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) - rows.count("| promise | held by |") == len(NAMED) > 20
