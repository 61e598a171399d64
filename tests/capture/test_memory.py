"""The cause of a script's last diagnosis."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eureka.capture.memory import MAX_SCRIPTS, remember


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "eureka" / "diagnoses.json"


def test_the_cause_before_comes_back_for_its_own_script_only(state: Path) -> None:
    assert remember("a.py", "lr_too_small") is None
    assert remember("b.py", "healthy") is None
    assert remember("a.py", "healthy") == "lr_too_small"
    assert remember("a.py", "healthy") == "healthy"
    assert json.loads(state.read_text()) == {"b.py": "healthy", "a.py": "healthy"}


def test_the_scripts_of_longest_ago_are_forgotten(state: Path) -> None:
    state.parent.mkdir()
    state.write_text(json.dumps({str(index): "healthy" for index in range(MAX_SCRIPTS)}))
    assert remember("0", "lr_too_small") == "healthy"
    assert remember("new", "healthy") is None
    assert len(json.loads(state.read_text())) == MAX_SCRIPTS
    assert remember("0", "healthy") == "lr_too_small"  # it was diagnosed again
    assert remember("1", "healthy") is None


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe", b'{"a.py": 3}', b"[" * 100_000])
def test_a_damaged_file_is_begun_again(state: Path, content: bytes) -> None:
    state.parent.mkdir()
    state.write_bytes(content)
    assert remember("a.py", "healthy") is None
    assert remember("a.py", "healthy") == "healthy"


def test_a_folder_that_cannot_be_written_changes_nothing(state: Path) -> None:
    state.parent.write_text("a file where the folder should be")
    assert remember("a.py", "healthy") is None
    assert remember("a.py", "healthy") is None
    state.parent.unlink()
    state.mkdir(parents=True)  # a folder where the file should be
    assert remember("a.py", "healthy") is None
