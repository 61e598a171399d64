"""The table of what was tried comes from run folders alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.regimes import HEADER, nearest_recipe, seen, table
from eureka.config import RunConfig
from eureka.experiment import run
from eureka.recipes import recipe
from eureka.runs import Metrics, Origin, RunFolder, StoredConfig


def test_a_run_is_listed_by_the_command_that_makes_it_again(tmp_path: Path, tiny: RunConfig) -> None:
    run(tiny, tmp_path / "one")
    (tmp_path / "unfinished").mkdir()
    RunFolder(tmp_path / "unfinished").write_config(StoredConfig(tiny.to_json()))
    lines = table([tmp_path]).splitlines()
    assert len(lines) == 3
    cells = dict(zip(HEADER, (cell.strip() for cell in lines[2].strip("|").split("|")), strict=True))
    assert cells["run"].startswith("`eureka run tiles --set attention.name=norm_softmax --set task.tokens=1")
    assert "--set training.lr=0.001" in cells["run"]
    assert cells["steps"] == "24"
    assert cells["theory"] == "0.624"


def test_a_recorded_recipe_counts_and_not_the_nearest(tmp_path: Path, tiny: RunConfig) -> None:
    run(tiny, tmp_path, origin=Origin("digits", {"training.lr": 0.5}))
    assert "| `eureka run digits --set training.lr=0.5` |" in table([tmp_path])


def test_the_nearest_recipe_is_the_one_that_differs_least() -> None:
    changes = {"attention.name": "norm_softmax_var", "training.lr": 7e-4, "training.seed": 3}
    config = StoredConfig(recipe("small/chain_digits").but(changes).to_json())
    assert nearest_recipe(config) == Origin("small/chain_digits", changes)


def test_a_run_older_than_a_setting_had_its_default() -> None:
    config = recipe("small/chain_tiles").but({"model.position_init_scale": 1.0}).to_json()
    expected = nearest_recipe(StoredConfig(config))
    del config["model"]["position_init_scale"]
    assert nearest_recipe(StoredConfig(config)) == expected == Origin("small/chain_tiles", {"model.position_init_scale": 1.0})


def line(step: int, loss: float) -> Metrics:
    return Metrics(step, loss, 0.0, loss, 0.0, 1e-3)


def test_plateau_and_fall_are_the_detector_s() -> None:
    t = np.arange(0, 2_000, 20)
    losses = 0.6 - 0.55 / (1 + np.exp(-(t - 1_200) / 30)) + 0.002 * np.random.default_rng(0).standard_normal(len(t))
    metrics = [line(int(step), float(loss)) for step, loss in zip(t, losses, strict=True)]
    level, steepest = seen(metrics, True)
    assert level == pytest.approx(0.6, abs=0.02)
    assert steepest == pytest.approx(1_200, abs=40)


def test_without_a_fall_the_plateau_is_the_second_half_unless_the_run_leapt_gradually() -> None:
    metrics = [line(step, loss) for step, loss in zip(range(1, 7), (9.0, 5, 3, 2, 2, 2), strict=True)]
    assert seen(metrics, False) == (2, None)
    assert seen(metrics, True) == (None, None)
    assert seen([], False) == (None, None)
