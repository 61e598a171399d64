"""Studies: which runs they are, where they are, where they come from, and what is wrong with them before the first begins."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from eureka.cli.run_study import bring_to_end, read_again, read_runs
from eureka.config import RunConfig
from eureka.errors import DamagedRunError, RequestError, UnknownNameError
from eureka.recipes import recipe
from eureka.runs import Outcome, StoredConfig
from eureka.study.plan import Study, origin, read_plan, read_plans, run_name
from eureka.study.pool import LocalPool
from eureka.study.status import run_status

GRID: dict[str, Sequence[object]] = {
    "training.seed": [0, 1],
    "training.lr": [1e-3, 1e-2],
    "attention.name": ["softmax", "norm_softmax"],
}
OUTCOME = Outcome("finished", 7, 7.0, 7, None, None, (), 7.0, 7.0)
ROOT = Path(__file__).parent.parent.parent


LISTENERS: list[Counter[str]] = []


def _listen(event: str, arguments: tuple[Any, ...]) -> None:
    for counter in LISTENERS:
        counter[event] += 1
        if event == "open":
            counter[Path(str(arguments[0])).name] += 1


@cache
def _hook() -> None:
    sys.addaudithook(_listen)  # for good: there is no way to take it away


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """How often files and folders were opened, and how often somebody waited for the disk."""
    _hook()
    counter: Counter[str] = Counter()
    fsync = os.fsync

    def counted(descriptor: int) -> None:
        counter["fsync"] += 1
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    LISTENERS.append(counter)
    yield counter
    LISTENERS.remove(counter)


def attention(config: RunConfig) -> dict[str, object]:
    return {key.removeprefix("attention."): value for key, value in config.flat().items() if key.startswith("attention.")}


def plan(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path


def test_variants_times_grid_with_a_number_of_seeds(tmp_path: Path) -> None:
    text = """
recipe: tiles
set: {training.steps: 500}
variants: [{attention.name: softmax}, {attention.name: softmax, training.qk_lr_scale: 10}]
grid: {training.lr: [1e-4, 3e-4], training.seed: 3}
"""
    study = read_plan(plan(tmp_path, text), tmp_path)
    assert len(study.configs) == 2 * 2 * 3
    assert {config.training.steps for config in study.configs} == {500}
    assert {config.training.lr for config in study.configs} == {1e-4, 3e-4}  # YAML takes 1e-4 for a text; people do not
    assert {config.training.qk_lr_scale for config in study.configs} == {1.0, 10.0}


def test_the_same_run_is_done_only_once(tmp_path: Path) -> None:
    text = "recipe: tiles\nvariants: [{attention.name: softmax}, {attention.name: softmax}]\ngrid: {training.seed: [0, 0, 1]}"
    assert len(read_plan(plan(tmp_path, text), tmp_path).configs) == 2


def test_every_problem_is_told_at_once_with_the_nearest_key(tmp_path: Path) -> None:
    text = "recipe: tiles\ngrid: {training.lrr: [1], model.dim: [0], attention.name: [sofmax]}"
    with pytest.raises(RequestError) as caught:
        read_plan(plan(tmp_path, text), tmp_path)
    message = str(caught.value)
    for part in (
        "plan.yaml",
        "did you mean 'training.lr'?",
        "dim = 0 should be greater than 0",
        "did you mean 'softmax'?",
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("recpie: tiles", "did you mean 'recipe'?"),
        ("grid: {training.lr: [1]}", "the key 'recipe' is missing."),
        ("recipe: tyles", "did you mean 'tiles'?"),
        ("recipe: tiles\ngrid: [1, 2]", "'grid' must map config keys to lists of values."),
        ("recipe: tiles\nvariants: {a: b}", "'variants' must be a list of maps"),
        ("recipe: tiles\ngrid: {training.seed: 0}", "at least one seed is needed"),
        ("recipe: tiles\ngrid: {training.lr: []}", "training.lr: []: the list is empty; give it a value, or leave the key out."),
        ("recipe: tiles\ngrid: {training.seed: [], model.dim: []}", "out. model.dim: []: the list is empty"),
        ("recipe: tiles\ngrid: {training.seed: '3'}", 'training.seed: "3": expected a number of seeds, as in 6, or a list'),
        ("recipe: tiles\ngrid: {training.seed: 3.0}", "training.seed: 3.0: expected a number of seeds"),
        ("recipe: tiles\ngrid: {training.seed: true}", "training.seed: true: expected a number of seeds"),
        ("recipe: tiles\ngrid: {training.seed: [0, '3']}", 'training.seed: "3": expected'),
        ("recipe: tiles\ngrid: {training.seed: [0, false]}", "training.seed: false: expected"),
        ("recipe: tiles\ngrid: {training.seed: [1.0]}", "training.seed: 1.0: expected"),
        ("recipe: [", "is not YAML"),
        ("just a text", "holds no study"),
        ("", "holds no study"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_with_its_name(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=r"plan\.yaml") as caught:
        read_plan(plan(tmp_path, text), tmp_path)
    assert sentence in str(caught.value)


def test_seeds_are_a_number_of_them_or_a_list(tmp_path: Path) -> None:
    for given, seeds in (("3", [0, 1, 2]), ("[3]", [3]), ("[4, 0]", [4, 0])):
        study = read_plan(plan(tmp_path, f"recipe: tiles\ngrid: {{training.seed: {given}}}"), tmp_path)
        assert [config.training.seed for config in study.configs] == seeds


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"cannot read .*: No such file or directory"):
        read_plan(tmp_path / "none.yaml", tmp_path)


def test_a_file_can_name_several_studies_each_with_a_folder_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("recipe: tiles\ngrid: {training.seed: 2}")
    (tmp_path / "b.yaml").write_text("recipe: digits\ngrid: {training.seed: 3}")
    found = read_plans(plan(tmp_path, "studies: [a.yaml, b.yaml, a.yaml]"), tmp_path / "out")
    assert [(study.folder, study.recipe, len(study.configs)) for study in found] == [
        (tmp_path / "out" / "a", "tiles", 2),
        (tmp_path / "out" / "b", "digits", 3),
    ]
    assert len(read_plans(plan(tmp_path, "studies: [a.yaml, ./a.yaml]"), tmp_path / "out")) == 1
    [alone] = read_plans(tmp_path / "a.yaml", tmp_path / "out")
    assert alone.folder == tmp_path / "out"


@pytest.mark.parametrize("files", [("a/x.yaml", "b/x.yaml"), ("x.yaml", "x.yml")])
def test_two_studies_that_would_share_a_folder_are_refused(tmp_path: Path, files: tuple[str, str]) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("recipe: tiles")
    told = rf"plan\.yaml: {files[0]} and {files[1]} would both keep their runs in \S+out/x; give one file another name\.$"
    with pytest.raises(RequestError, match=told):
        read_plans(plan(tmp_path, f"studies: [{', '.join(files)}]"), tmp_path / "out")


@pytest.mark.parametrize("text", ["studies: a.yaml", "studies: []", "studies: [1]", "studies: [a.yaml]\nrecipe: tiles"])
def test_a_list_of_studies_that_is_none_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(RequestError, match=r"plan\.yaml: 'studies' must be a list of files, and the only key\."):
        read_plans(plan(tmp_path, text), tmp_path)


def test_outcomes_of_the_same_configs_are_taken_and_a_run_that_has_begun_is_left_alone(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, {"training.seed": [0, 1, 2]}, tmp_path)
    begun, ended, absent = study.prepare()
    begun.metrics_file.write_text("")
    ended.write_result(OUTCOME)
    other = replace(OUTCOME, steps=8)
    assert study.take({begun.name: other, ended.name: other, absent.name: other, "another": other}) == 1
    assert [run.result() for run in study.prepare()] == [None, OUTCOME, other]


def test_a_table_with_more_steps_than_a_run_was_to_have_is_refused(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, {"training.seed": [0, 1]}, tmp_path)
    name = run_name(study.configs[1])
    study.check_known({name: replace(OUTCOME, steps=24), "another": replace(OUTCOME, steps=99)}, tmp_path / "known.csv")
    with pytest.raises(RequestError, match=rf"known\.csv: {name} has steps = 25, and in this study it has at most 24\.$"):
        study.check_known({name: replace(OUTCOME, steps=25)}, tmp_path / "known.csv")


def test_the_study_of_tiles_is_seven_arms_at_five_rates_with_six_seeds(tmp_path: Path) -> None:
    assert len(read_plan(ROOT / "results/tiles/study.yaml", tmp_path).configs) == 7 * 5 * 6


def test_a_grid_is_every_combination_and_the_last_key_changes_fastest(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, GRID, tmp_path)
    found = [(c.training.seed, c.training.lr, c.flat()["attention.name"]) for c in study.configs]
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
    assert attention(warm) == {"name": "temperature", "temperature": 0.5}
    assert attention(warm.but({"attention.name": "softmax"})) == {"name": "softmax"}


def test_settings_that_contradict_each_other_are_refused(tiny: RunConfig) -> None:
    with pytest.raises(RequestError, match=r"training\.warmup \(24\) must be below training\.steps \(24\)"):
        tiny.but({"training.warmup": 24})


def test_a_folder_that_cannot_be_made_is_one_sentence(tiny: RunConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="cannot make the folder"):
        Study.over(tiny, GRID, tmp_path / "file" / "study").prepare()


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("tiles", {}, {}),
        ("tiles", {"training.lr": 0.5, "training.steps": 1200}, {"training.lr": 0.5}),
        ("tiles", {"attention.name": "temperature"}, {"attention.name": "temperature"}),
        (
            "tiles",
            {"attention.name": "temperature", "attention.temperature": 0.5},
            {"attention.name": "temperature", "attention.temperature": 0.5},
        ),
        ("digits", {"model.name": "vit", "model.dim": 32, "model.depth": 2}, {"model.name": "vit"}),
    ],
)
def test_the_origin_of_a_run_is_its_recipe_and_the_keys_to_change(
    name: str, changes: dict[str, object], told: dict[str, object]
) -> None:
    config = recipe(name).but(changes)
    found = origin(name, config)
    assert found.recipe == name
    assert told.items() <= found.changes.items()
    assert recipe(name).but(found.changes) == config


def test_a_study_of_a_recipe_records_it_in_every_run_and_one_of_python_has_none(tiny: RunConfig, tmp_path: Path) -> None:
    text = "recipe: tiles\nset: {training.steps: 1300}\ngrid: {attention.name: [softmax, temperature]}"
    folders = read_plan(plan(tmp_path, text), tmp_path / "file").prepare()
    found = [folder.origin() for folder in folders]
    assert [one.recipe for one in found if one] == ["tiles", "tiles"]
    changes = [one.changes for one in found if one]
    assert changes == [{"training.steps": 1300}, {"attention.name": "temperature", "training.steps": 1300}]
    assert [folder.origin() for folder in Study.over(tiny, GRID, tmp_path / "python").prepare()] == [None] * 8


def test_a_plan_that_a_power_cut_left_empty_is_written_again_and_a_run_that_has_begun_is_not_touched(
    tiny: RunConfig, tmp_path: Path
) -> None:
    study = Study.over(tiny, {"training.seed": [0, 1]}, tmp_path, "tiles")
    planned, begun = study.prepare()
    for folder in (planned, begun):
        (folder.path / "config.json").write_bytes(b"")
        (folder.path / "recipe.json").write_bytes(b"")
    begun.metrics_file.write_bytes(b"")
    with pytest.raises(DamagedRunError, match=r"config\.json is not what a run writes"):
        study.prepare()
    assert planned.config() == StoredConfig(study.configs[0].to_json())
    assert planned.origin() == origin("tiles", study.configs[0])


def test_a_link_in_a_planned_folder_is_refused(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, {"training.seed": [0]}, tmp_path / "study")
    [folder] = study.prepare()
    folder.metrics_file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedRunError, match="is a link"):
        study.prepare()


def test_a_plan_makes_a_folder_and_two_files_a_run_and_nothing_else(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, {"training.seed": [0, 1]}, tmp_path, "tiles")
    for _ in range(2):
        study.prepare()
        made = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
        names = sorted(map(run_name, study.configs))
        assert made == sorted(path for name in names for path in (name, f"{name}/config.json", f"{name}/recipe.json"))


def test_planning_waits_for_no_disk_and_opens_one_file_of_a_run_that_is_there(
    tiny: RunConfig, tmp_path: Path, calls: Counter[str]
) -> None:
    study = Study.over(tiny, {"training.seed": range(50)}, tmp_path, "tiles")
    folders = study.prepare()
    assert calls["fsync"] == 0, "a study of 10,000 runs would wait for minutes"
    for folder in folders:
        folder.write_result(OUTCOME)
        folder.metrics_file.write_bytes(b"")
    calls.clear()
    study.prepare()
    assert calls["open"] <= 50 + 10
    assert calls["os.scandir"] <= 50 + 10
    assert calls["os.mkdir"] <= 10


def test_to_go_on_with_a_finished_study_reads_two_files_a_run_and_no_metrics(
    tiny: RunConfig, tmp_path: Path, calls: Counter[str]
) -> None:
    folders = Study.over(tiny, {"training.seed": range(50)}, tmp_path).prepare()
    for folder in folders:
        folder.write_result(OUTCOME)
        folder.metrics_file.write_bytes(b"")
    calls.clear()
    runs = read_runs(folders)
    assert bring_to_end(LocalPool(1), runs, 1.0) == []
    assert [run_status(run).phase for run in read_again(runs)] == ["ended"] * 50
    assert calls["open"] <= 2 * 50 + 10
    assert calls["metrics.jsonl"] == 0
