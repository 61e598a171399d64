"""Damaged logs are read or refused in one sentence; ``make fuzz`` reads 10,000 of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.curves.fuzzing import MEGABYTES, damaged, memory, outcome


def test_damaged_logs_give_no_traceback_and_take_little_memory(tmp_path: Path) -> None:
    before = memory()
    results = {what: outcome(path, json=bool(i % 2)) for i, (what, path) in enumerate(damaged(120, seed=7, folder=tmp_path))}
    assert {what: result for what, result in results.items() if result not in ("read", "refused")} == {}
    assert {"read", "refused"} == set(results.values())
    assert memory() - before < MEGABYTES


def test_the_check_of_damaged_logs_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("eureka.curves.readers.folders.read_file", broken)
    assert "IndexError" in outcome(tmp_path / "log.csv", json=True)
