"""How runs are called while a study runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eureka.cli.display import StudyDisplay, labels
from eureka.config import RunConfig
from eureka.runs import RunFolder


def planted(path: Path, config: RunConfig, changes: list[dict[str, Any]]) -> list[RunFolder]:
    folders = [RunFolder(path / str(i)) for i in range(len(changes))]
    for folder, changed in zip(folders, changes, strict=True):
        folder.path.mkdir()
        folder.write("config.json", config.but(changed).to_json())
    return folders


def test_runs_that_differ_in_a_setting_are_told_apart(tmp_path: Path, tiny: RunConfig) -> None:
    changes = [{"attention.name": name, "task.decisions": steps} for name in ("softmax", "norm_softmax") for steps in (2, 3)]
    found = labels(planted(tmp_path, tiny, changes))
    assert found[:2] == ["softmax, decisions 2, lr 0.001, seed 0", "softmax, decisions 3, lr 0.001, seed 0"]
    assert len(set(found)) == 4


def test_what_all_runs_share_or_only_another_fix_has_is_not_told(tmp_path: Path, tiny: RunConfig) -> None:
    found = labels(
        planted(tmp_path, tiny, [{"attention.name": "softmax"}, {"attention.name": "norm_softmax", "training.seed": 1}])
    )
    assert found == ["softmax, lr 0.001, seed 0", "norm_softmax, lr 0.001, seed 1"]


def test_a_line_for_an_event_names_the_run(tmp_path: Path, tiny: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = planted(tmp_path, tiny, [{"task.decisions": 2}, {"task.decisions": 3}])
    with StudyDisplay([first, second]):
        second.write("result.json", {"status": "finished", "steps": 24, "eureka_step": None, "final_accuracy": 0.5})
    assert capsys.readouterr().err.startswith("norm_softmax, decisions 3, lr 0.001, seed 0: ")
