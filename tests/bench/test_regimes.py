"""The table of what was tried comes from run folders alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from eureka.bench.regimes import HEADER, nearest_recipe, plateau, table
from eureka.experiment import RunConfig, run
from eureka.recipes import recipe
from eureka.runs import RunFolder


def test_a_run_is_listed_under_its_recipe_with_what_was_changed(tmp_path: Path, tiny: RunConfig) -> None:
    run(tiny, tmp_path / "one")
    (tmp_path / "unfinished").mkdir()
    RunFolder(tmp_path / "unfinished").write("config.json", tiny.model_dump(mode="json"))
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
    assert nearest_recipe(config.model_dump(mode="json")) == ("small/chain_digits", {"training.lr": 7e-4})


def test_the_plateau_is_what_came_just_before_the_leap() -> None:
    metrics = [{"step": step, "validation_loss": loss} for step, loss in zip(range(1, 9), (9, 5, 3, 2, 2, 2, 0, 0), strict=True)]
    assert plateau(metrics, {"moments": [{"onset": 6}], "steps": 8}) == pytest.approx(2)
    assert plateau(metrics[:6], {"moments": [], "steps": 6}) == pytest.approx(2)
    assert plateau([], {"moments": [], "steps": 6}) is None
