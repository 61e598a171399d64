"""What a study that adds seeds has decided stays so in every page that is made of its runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eureka.errors import WorkError
from eureka.recipes import recipe
from eureka.runs import Outcome, find_runs
from eureka.study.comparison import Comparison, compare_arms
from eureka.study.decided import FILE, keep_decided
from eureka.study.plan import Study
from eureka.study.rounds import compare_at_looks, stand
from eureka.study.summary import grouped, summarise


def plant(folder: Path, seeds: int = 6) -> Study:
    """Runs that have ended: norm_softmax is sooner in each."""
    grid = {"training.seed": range(seeds), "training.lr": [1e-3], "attention.name": ["softmax", "norm_softmax"]}
    study = Study.over(recipe("tiles"), grid, folder, "tiles")
    for run in study.prepare():
        config = run.config()
        assert config is not None
        step = (300 if config.fix == "norm_softmax" else 800) + config.seed
        run.write_result(Outcome("finished", 1200, 60.0, 640, step, step, (), 0.5, 0.9))
    return study


def told(folder: Path) -> Comparison:
    [one] = summarise(find_runs(folder)).comparisons
    return one


def test_a_page_says_what_was_decided_and_nothing_else(tmp_path: Path) -> None:
    study = plant(tmp_path / "study")
    [fixed] = compare_arms(grouped(find_runs(tmp_path)))
    assert told(tmp_path).verdict == fixed.verdict  # runs of a fixed number of seeds
    decided = compare_at_looks(stand(study.runs()))
    keep_decided(tmp_path / "study", decided, seeds=6)
    assert told(tmp_path).to_json() == decided[0].to_json()
    assert told(tmp_path).verdict.endswith("decided after 6 seeds")


def test_before_the_first_look_nothing_is_decided_however_clear_it_seems(tmp_path: Path) -> None:
    plant(tmp_path / "study")
    keep_decided(tmp_path / "study", [], seeds=6)
    assert told(tmp_path).standing == "open"
    assert told(tmp_path).verdict.startswith("not decided yet: 2.7× sooner so far")


def test_with_the_runs_of_another_folder_nothing_is_decided(tmp_path: Path) -> None:
    study = plant(tmp_path / "study")
    keep_decided(tmp_path / "study", compare_at_looks(stand(study.runs())), seeds=6)
    plant(tmp_path / "other", seeds=8)
    assert told(tmp_path).standing == "open"


def test_rates_are_put_together_by_the_seeds_that_all_have(tmp_path: Path) -> None:
    grid = {"training.seed": range(8), "training.lr": [1e-3, 3e-3], "attention.name": ["softmax", "norm_softmax"]}
    for run in Study.over(recipe("tiles"), grid, tmp_path / "study", "tiles").prepare():
        config = run.config()
        assert config is not None
        if config.seed < 6 or config.lr == 1e-3:
            run.write_result(Outcome("finished", 1200, 60.0, 640, 300, 300, (), 0.5, 0.9))
    keep_decided(tmp_path / "study", [], seeds=6)
    assert [one.runs for one in summarise(find_runs(tmp_path)).over_rates] == [12, 12]


@pytest.mark.parametrize("text", ["{", "[]", '{"seeds": 6, "comparisons": {"a": {}}}', '{"seeds": 6, "comparisons": [1]}'])
def test_a_damaged_file_is_named_in_one_sentence(text: str, tmp_path: Path) -> None:
    plant(tmp_path)
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(WorkError, match=r"until_sure\.json is damaged; remove it"):
        told(tmp_path)


def test_what_is_kept_is_plain_json(tmp_path: Path) -> None:
    keep_decided(tmp_path, compare_at_looks(stand(plant(tmp_path).runs())), seeds=6)
    document = json.loads((tmp_path / FILE).read_text(encoding="utf-8"))
    [[fix, baseline, _]] = [json.loads(key) for key in document["comparisons"]]
    assert (fix, baseline, document["seeds"]) == ("norm_softmax", "softmax", 6)
