"""Studies: which runs they are, where they are, and what is wrong with them before the first begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from eureka.config import RunConfig
from eureka.errors import RequestError, UnknownNameError
from eureka.study import Study

GRID = {"training.seed": [0, 1], "training.lr": [1e-3, 1e-2], "attention.name": ["softmax", "norm_softmax"]}


def test_a_grid_is_every_combination_and_the_last_key_changes_fastest(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, GRID, tmp_path)
    found = [(c.training.seed, c.training.lr, c.attention.name) for c in study.configs]
    assert found == [(s, lr, fix) for s in (0, 1) for lr in (1e-3, 1e-2) for fix in ("softmax", "norm_softmax")]


def test_the_same_config_gets_the_same_folder_and_different_ones_different_folders(tiny: RunConfig, tmp_path: Path) -> None:
    first = [folder.path for folder in Study.over(tiny, GRID, tmp_path).prepare()]
    again = [folder.path for folder in Study.over(tiny, GRID | {"training.seed": [0, 1, 2]}, tmp_path).prepare()]
    assert len(set(first)) == 8
    assert set(first) < set(again)
    wider = Study.over(tiny.but({"model.dim": 32}), GRID, tmp_path).prepare()
    assert not {folder.path for folder in wider} & set(first)


def test_every_problem_of_a_grid_is_told_at_once(tiny: RunConfig, tmp_path: Path) -> None:
    with pytest.raises(RequestError) as caught:
        Study.over(tiny, {"training.lr": [1e-3, -1.0], "model.heads": [2, 0]}, tmp_path)
    assert "lr = -1.0 should be greater than 0" in str(caught.value)
    assert "heads = 0 should be greater than 0" in str(caught.value)


def test_a_key_that_does_not_exist_names_the_nearest(tiny: RunConfig) -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'training.steps'\?"):
        tiny.but({"training.step": 3})
    with pytest.raises(UnknownNameError, match=r"did you mean 'training.lr'\?"):
        tiny.but({"trainin.lr": 3})
    with pytest.raises(UnknownNameError, match=r"unknown setting of task 'tiles' 'noize'; did you mean 'noise'\?"):
        tiny.but({"task.noize": 3})


def test_a_new_fix_brings_its_own_defaults_and_keeps_no_setting_of_the_old(tiny: RunConfig) -> None:
    warm = tiny.but({"attention.name": "temperature", "attention.temperature": 0.5})
    assert warm.attention.values() == {"name": "temperature", "temperature": 0.5}
    assert warm.but({"attention.name": "softmax"}).attention.values() == {"name": "softmax"}


def test_settings_that_contradict_each_other_are_refused(tiny: RunConfig) -> None:
    with pytest.raises(RequestError, match=r"training\.warmup \(24\) must be below training\.steps \(24\)"):
        tiny.but({"training.warmup": 24})


def test_a_folder_that_cannot_be_made_is_one_sentence(tiny: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot make the folder"):
        Study.over(tiny, GRID, tmp_path / "file" / "study").prepare()
