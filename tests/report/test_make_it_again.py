"""The commands on the page make the runs again."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from eureka.report.details import again
from eureka.report.report_run import read_rest
from eureka.runs import Origin, RunFolder, find_runs, read_run


def commands(*folders: Path) -> list[list[str]]:
    runs = [read_rest(run) for folder in folders for found in find_runs(folder) if (run := read_run(found))]
    return [shlex.split(line.replace("\\\n", "")) for line in again(runs, folders, Path("report.html")).lines]


def eureka(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "eureka", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return json.loads(done.stdout), done.stderr


def names(study: Path) -> list[str]:
    return sorted(path.name for path in study.iterdir() if path.is_dir())


def without_recipe(study: Path) -> Path:
    for path in study.glob("*/recipe.json"):
        path.unlink()
    return study


def test_the_compare_command_means_exactly_the_runs_of_the_page(real_study: Path, tmp_path: Path) -> None:
    study = shutil.copytree(real_study, tmp_path / "study")
    compare, page = commands(study)
    changes = {"model.dim=16", "model.depth=1", "training.steps=30", "training.warmup=5", "training.log_every=5"}
    changes |= {"training.batch_size=32", "training.validation_samples=64"}
    assert compare[:3] == ["eureka", "compare", "tiles"]
    assert {word for word in compare if "=" in word} == changes, "only what was changed"
    assert page == ["eureka", "report", str(study), "-o", "report.html"]
    before = names(study)
    document, told = eureka(*compare[1:], "--out", str(study), "--json")
    assert "4 of 4 runs are finished already." in told
    assert names(study) == before
    assert len(document["rows"]) == 2


def test_runs_without_a_recipe_are_told_with_every_key(real_study: Path, tmp_path: Path) -> None:
    study = without_recipe(shutil.copytree(real_study, tmp_path / "study"))
    compare, _ = commands(study)
    config = find_runs(study)[0].config()
    assert config is not None
    keys = {word.partition("=")[0] for word in compare if "=" in word}
    assert keys == {key for key in config.flat if not key.startswith("attention.")} - {
        "training.lr",
        "training.seed",
        "task.name",
    }
    _, told = eureka(*compare[1:], "--out", str(study), "--json")
    assert "4 of 4 runs are finished already." in told
    assert len(names(study)) == 4


def test_runs_that_are_no_grid_are_told_one_by_one(real_study: Path) -> None:
    chosen = sorted(path for path in real_study.iterdir() if path.is_dir())[:3]
    *runs, _ = commands(*chosen)
    assert [run[:3] for run in runs] == [["eureka", "run", "tiles"]] * 3
    document, _ = eureka(*runs[0][1:], "--out", str(real_study), "--json")
    assert Path(document["folder"]) == chosen[0]


def test_arms_that_are_grids_of_their_own_are_a_command_each(tmp_path: Path, plant: Any) -> None:
    for scale, fixes in [(1.0, ["softmax", "norm_softmax"]), (10.0, ["softmax"])]:
        for fix, lr, seed in itertools.product(fixes, [1e-4, 1e-3], range(2)):
            changes = {"training.qk_lr_scale": scale, "attention.name": fix, "training.lr": lr, "training.seed": seed}
            plant(tmp_path, changes)
    *compare, _ = sorted(commands(tmp_path), key=lambda words: words[1:])
    told = [(words[words.index("--fix") + 1], words[-1]) for words in compare]
    assert told == [("softmax", "training.qk_lr_scale=10.0"), ("softmax,norm_softmax", "training.qk_lr_scale=1.0")]
    assert all(words[words.index("--seeds") + 1] == "2" for words in compare)


def plant_from_recipe(plant: Any, folder: Path, recipe: str, changes: dict[str, Any]) -> RunFolder:
    found: RunFolder = plant(folder, changes, origin=Origin(recipe, changes))
    return found


def test_settings_of_a_fix_stand_beside_its_name(tmp_path: Path, plant: Any) -> None:
    plant_from_recipe(plant, tmp_path, "small/main", {"training.steps": 900})
    plant_from_recipe(plant, tmp_path, "small/main", {"attention.name": "temperature", "attention.tau": 2, "training.steps": 900})
    *runs, _ = commands(tmp_path)
    assert [" ".join(run) for run in runs] == [
        "eureka compare small/main --fix softmax,temperature:tau=2 --seeds 1 --set training.steps=900"
    ]


def test_starts_are_one_option(tmp_path: Path, plant: Any) -> None:
    for start, seed in itertools.product(["paper", "clear"], range(2)):
        own = {} if start == "paper" else {"model.start": start}
        changes = {"training.seed": seed} | own
        plant(tmp_path, {"training.seed": seed, "model.start": start}, origin=Origin("tiles", changes))
    *runs, _ = commands(tmp_path)
    [[*_, option, starts, last, seeds]] = runs
    assert (option, set(starts.split(",")), last, seeds) == ("--start", {"paper", "clear"}, "--seeds", "2")


def test_runs_of_two_recipes_are_a_command_each(tmp_path: Path, plant: Any) -> None:
    for seed in range(2):
        plant_from_recipe(plant, tmp_path, "tiles", {"training.seed": seed})
    plant_from_recipe(plant, tmp_path, "small/main", {"training.seed": 1})
    *runs, _ = commands(tmp_path)
    assert sorted(" ".join(run) for run in runs) == [
        "eureka compare tiles --fix softmax --seeds 2",
        "eureka run small/main --set training.seed=1",
    ]


def test_a_folder_that_holds_just_these_runs_is_named_once(study: Path) -> None:
    runs = sorted(study.iterdir())
    assert commands(*runs)[-1] == ["eureka", "report", str(study), "-o", "report.html"]
    assert commands(*runs[:2])[-1] == ["eureka", "report", str(runs[0]), str(runs[1]), "-o", "report.html"]
