"""A short fuzz of run folders, requests and answers; ``make fuzz`` does a long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardened.answers import hostile_answers
from tests.hardened.attack import command, failures, outcome
from tests.hardened.folders import damaged_folders
from tests.hardened.requests import hostile_requests


def test_damaged_run_folders_are_used_or_refused_in_a_sentence(tmp_path: Path) -> None:
    found, wrong = failures(damaged_folders(40, seed=3, folder=tmp_path))
    assert wrong == []
    assert {"done", "refused"} == set(found)


def test_hostile_requests_are_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, wrong = failures(hostile_requests(40, seed=3, folder=tmp_path))
    assert wrong == []
    assert found["refused"] > 20


def test_hostile_answers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    _, wrong = failures(hostile_answers(30, seed=3))
    assert wrong == []


def test_the_check_can_fail() -> None:
    def broken() -> int:
        raise IndexError("list index out of range")

    assert "IndexError" in outcome(broken)
    assert outcome(lambda: 3) == "exit 3 with "
    assert outcome(lambda: 1) == "exit 1 without a word"
    assert outcome(command("detect", "nowhere.csv")) == "refused"
