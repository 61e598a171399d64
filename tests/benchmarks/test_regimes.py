"""The table of what was tried comes from run folders alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.regimes import HEADER, nearest_recipe, seen, table
from eureka.config import RunConfig
from eureka.experiment import run
from eureka.recipes import recipe
from eureka.runs import RunFolder


def test_a_run_is_listed_under_its_recipe_with_what_was_changed(tmp_path: Path, tiny: RunConfig) -> None:
    run(tiny, tmp_path / "one")
    (tmp_path / "unfinished").mkdir()
    RunFolder(tmp_path / "unfinished").write("config.json", tiny.to_json())
    lines = table([tmp_path]).splitlines()
    assert len(lines) == 3
    cells = dict(zip(HEADER, (cell.strip() for cell in lines[2].strip("|").split("|")), strict=True))
    assert cells["recipe"] == "tiles"
    assert cells["fix"] == "norm_softmax"
    assert "task.tokens=1" in cells["changed"]
    assert "lr=0.001" in cells["changed"]
    assert cells["steps"] == "24"
    assert cells["theory"] == "0.624"


def test_the_nearest_recipe_is_the_one_that_differs_least() -> None:
    config = recipe("small/chain_digits").but({"training.lr": 7e-4, "attention.name": "norm_softmax_var", "training.seed": 3})
    assert nearest_recipe(config.to_json()) == ("small/chain_digits", {"training.lr": 7e-4})


def test_a_run_older_than_a_setting_had_its_default() -> None:
    config = recipe("small/chain_tiles").but({"model.position_init_scale": 1.0}).to_json()
    expected = nearest_recipe(config)
    del config["model"]["position_init_scale"]
    assert nearest_recipe(config) == expected == ("small/chain_tiles", {"model.position_init_scale": 1.0})


def test_plateau_and_fall_are_the_detector_s() -> None:
    t = np.arange(0, 2_000, 20)
    losses = 0.6 - 0.55 / (1 + np.exp(-(t - 1_200) / 30)) + 0.002 * np.random.default_rng(0).standard_normal(len(t))
    metrics = [{"step": int(step), "validation_loss": float(loss)} for step, loss in zip(t, losses, strict=True)]
    level, steepest = seen(metrics, True)
    assert level == pytest.approx(0.6, abs=0.02)
    assert steepest == pytest.approx(1_200, abs=40)


def test_without_a_fall_the_plateau_is_the_second_half_unless_the_run_leapt_gradually() -> None:
    metrics = [{"step": step, "validation_loss": loss} for step, loss in zip(range(1, 7), (9.0, 5, 3, 2, 2, 2), strict=True)]
    assert seen(metrics, False) == (2, None)
    assert seen(metrics, True) == (None, None)
    assert seen([], False) == (None, None)
