"""What is said about runs while a study runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eureka.cli.display import StudyDisplay, StudyProgress
from eureka.config import RunConfig
from eureka.runs import Outcome, RunFolder, StoredConfig, read_run


def planted(path: Path, config: RunConfig, changes: list[dict[str, Any]]) -> list[RunFolder]:
    folders = [RunFolder(path / str(i)) for i in range(len(changes))]
    for folder, changed in zip(folders, changes, strict=True):
        folder.path.mkdir()
        folder.write_config(StoredConfig(config.but(changed).to_json()))
    return folders


def test_a_line_for_an_event_names_the_run(tmp_path: Path, tiny: RunConfig, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = planted(tmp_path, tiny, [{"task.decisions": 2}, {"task.decisions": 3}])
    with StudyDisplay([run for run in map(read_run, (first, second)) if run is not None]):
        second.write_result(Outcome("diverged", 24, 1.0, 384, None, None, (), None, 0.5))
    assert capsys.readouterr().err == "norm_softmax, decisions 3, lr 0.001, seed 0: diverged at step 24\n"


def test_the_headline_stands_beside_the_number_of_runs() -> None:
    first, *_ = StudyProgress(lambda: " · round 2 of at most 5").get_renderables()
    assert str(first) == "0 of 0 runs ended · round 2 of at most 5 · Ctrl-C stops, the same command goes on"
