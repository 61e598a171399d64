"""Every recipe is what its listing says, and trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.data.catalogue import CATALOGUE
from eureka.data.store import located
from eureka.errors import UnknownNameError
from eureka.experiment import build, run
from eureka.recipes import RECIPES, recipe
from eureka.tasks.registry import TASKS

NEEDS = {"cifar_indicator": ["mnist", "fashion_mnist", "cifar10"], "masked_text": ["sotu"]}


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("name", RECIPES)
def test_its_size_is_as_listed(name: str) -> None:
    _, model = build(recipe(name))
    assert sum(parameter.numel() for parameter in model.parameters()) == RECIPES[name].parameters


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("name", [name for name in RECIPES if not name.startswith("paper/") or "main" in name])
def test_it_trains_for_a_few_steps(name: str, tmp_path: Path) -> None:
    few: dict[str, Any] = {"training.steps": 2, "training.warmup": 1, "training.log_every": 1}
    few |= {"training.batch_size": 4, "training.validation_samples": 8, "training.early_stop": False}
    result = run(recipe(name).but(few), tmp_path / "run")
    assert result.outcome.status == "finished"
    assert np.isfinite([line.train_loss for line in result.folder.metrics()]).all()


def test_every_task_has_a_small_recipe_or_one_to_begin_with() -> None:
    assert {found.task for name, found in RECIPES.items() if name.startswith("small/") or "/" not in name} == set(TASKS.names())


def test_a_recipe_says_what_it_is_and_what_it_costs() -> None:
    for found in RECIPES.values():
        assert found.summary
        assert "\n" not in found.summary
        assert (found.minutes is None) == found.name.startswith("paper/") or found.name == "qds/full"


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'small/main'"):
        recipe("small/mian")


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("small/")])
def test_small_recipes_build_on_the_real_data(name: str) -> None:
    task = RECIPES[name].task
    needed = NEEDS.get(task, ["mnist", "fashion_mnist"] if "tile" in recipe(name).task.values() else [])
    missing = [data for data in needed if located(CATALOGUE[data]) is None]
    if missing:
        pytest.skip(f"`eureka data fetch {' '.join(missing)}` brings what this needs")
    task_itself, _ = build(recipe(name))
    assert len(task_itself.levels()) >= 2
