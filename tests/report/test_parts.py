"""Groups, table, config, pictures: each part says what the folders say."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from eureka.report.definition import definition
from eureka.report.groups import group
from eureka.report.pictures import SERIES, loss_top, picture_data
from eureka.report.reading import read_runs
from eureka.report.settings import config_details, split, versions_details
from eureka.report.table import csv_link, summary_csv, summary_table
from eureka.runs import find_runs


def test_fixes_are_colours_and_learning_rates_are_panels(tmp_path: Path, plant: Any) -> None:
    for lr in (1e-3, 3e-4):
        for fix in ("temperature", "softmax"):
            plant(tmp_path, {"training.lr": lr, "attention.name": fix})
    groups = group(read_runs([tmp_path]))
    assert groups.fixes == ["softmax", "temperature"]
    assert groups.panels == ["lr 3e-4", "lr 1e-3"]
    assert groups.panel_word == "learning rate"


def test_settings_of_a_fix_make_it_another_and_settings_of_the_rest_another_panel(tmp_path: Path, plant: Any) -> None:
    for tau in (0.5, 2):
        plant(tmp_path, {"attention.name": "temperature", "attention.tau": tau})
    plant(tmp_path, {"model.dim": 128}, leap=400)
    groups = group(read_runs([tmp_path]))
    assert groups.fixes == ["softmax", "temperature (tau=0.5)", "temperature (tau=2)"]
    assert groups.panels == ["model.dim 64", "model.dim 128"]
    by_row = {
        (row.fix, row.settings["attention.tau"]): (fix, panel)
        for row, fix, panel in zip(groups.rows, groups.fix_of_row, groups.panel_of_row, strict=True)
    }
    assert by_row == {("softmax", None): (0, 1), ("temperature", 0.5): (1, 0), ("temperature", 2): (2, 0)}


def test_a_panel_is_named_by_all_that_distinguishes_it(tmp_path: Path, plant: Any) -> None:
    for lr in (1e-3, 3e-4):
        plant(tmp_path, {"training.lr": lr, "model.dim": 128 if lr == 1e-3 else 64})
    assert group(read_runs([tmp_path])).panels == ["lr 3e-4 · model.dim 64", "lr 1e-3 · model.dim 128"]


def test_the_table_shows_every_column_for_people(study: Path, parse: Any) -> None:
    text = parse(summary_table(group(read_runs([study])))).text
    head = "fixlearning rateseedsEureka-ratio, 95 % intervalmedian Eureka-stepEureka-step of each seedaccuracy after"
    assert text.startswith(head)
    assert "softmax3e-40, 1, 20 of 3 0 – 71 %–– · – · –5" in text
    assert "norm_softmax3e-40, 1, 23 of 3 29 – 100 %575525 · 575 · 600" in text


def test_the_csv_holds_every_row_with_all_digits(study: Path, parse: Any) -> None:
    groups = group(read_runs([study]))
    link = parse(csv_link(groups)).elements[0][1]
    assert unquote(link["href"].split(",", 1)[1]) == summary_csv(groups.rows)
    for line, row in zip(csv.DictReader(io.StringIO(summary_csv(groups.rows))), groups.rows, strict=True):
        assert (line["fix"], float(line["lr"]), float(line["eureka_ratio"])) == (row.fix, row.lr, row.eureka_ratio)
        assert [int(step) if step else None for step in line["eureka_steps"].split(";")] == row.eureka_steps
        assert [float(accuracy) for accuracy in line["final_accuracy"].split(";")] == row.final_accuracy
        assert (float(line["eureka_ratio_low"]), float(line["eureka_ratio_high"])) == row.eureka_ratio_interval


def test_what_differs_comes_before_what_is_common(study: Path, parse: Any) -> None:
    text = parse(config_details(read_runs([study]))).text
    before, after = text.split("What they have in common")
    assert "attention.namenorm_softmax, softmax" in before
    assert "training.seed0, 1, 2" in before
    assert "training.lr0.0003" in after
    assert "training.seed" not in after


def test_a_key_that_some_lack_is_not_common() -> None:
    assert split([{"a": 1, "b": 2}, {"a": 1}]) == ([("a", [1])], [("b", [2])])


def test_runs_made_with_several_versions_say_so(tmp_path: Path, plant: Any, parse: Any) -> None:
    plant(tmp_path, environment={"torch": "2.4.0"})
    plant(tmp_path, {"training.seed": 1}, environment={"torch": "2.13.0"})
    assert "torch2.4.0, 2.13.0" in parse(versions_details(read_runs([tmp_path]))).text


def test_the_definition_tells_the_thresholds_of_this_task(study: Path, parse: Any) -> None:
    text = parse(definition(read_runs([study]))).text
    assert "accuracy is at least 77.5 % and its loss below 0.624." in text


def test_every_logged_value_is_in_the_pictures(real_study: Path) -> None:
    data = picture_data(group(read_runs([real_study])))
    assert len(data["runs"]) == 4
    for folder, run in zip(find_runs(real_study), data["runs"], strict=True):
        metrics = folder.metrics()
        assert data["steps"][run["steps"]] == [line["step"] for line in metrics]
        for name, column in SERIES.items():
            assert run[name] == pytest.approx([line[column] for line in metrics], rel=1e-4)
    assert len(data["steps"]) == 1
    assert data["panels"][0]["levels"] == folder.levels()


def test_leaps_stand_on_their_curve(study: Path) -> None:
    data = picture_data(group(read_runs([study])))
    leaps = [(run, leap) for run in data["runs"] for leap in run["leaps"]]
    assert len(leaps) == 3
    for run, leap in leaps:
        place = data["steps"][run["steps"]].index(leap["step"])
        assert (leap["loss"], leap["accuracy"], leap["last"]) == (run["loss"][place], run["accuracy"][place], True)
        assert leap["onset"] <= leap["step"]


def test_what_is_not_finite_is_a_gap_and_the_page_stays_json(tmp_path: Path, plant: Any) -> None:
    values = {"train_loss": math.inf, "train_accuracy": 0.1, "validation_accuracy": 0.1}
    lines = [{"step": 25 * i, **values, "validation_loss": loss} for i, loss in enumerate([2.3, math.nan, 1e9], start=1)]
    plant(tmp_path, metrics=lines, ended=False)
    data = picture_data(group(read_runs([tmp_path])))
    assert data["runs"][0]["loss"] == [2.3, None, 1e9]
    assert data["runs"][0]["trainLoss"] == [None] * 3
    json.dumps(data, allow_nan=False)


def test_one_run_that_explodes_does_not_press_the_others_flat(study: Path, plant: Any) -> None:
    calm = loss_top(read_runs([study]))
    lines = [
        {"step": 25, "validation_loss": 2.2, "validation_accuracy": 0.1},
        {"step": 50, "validation_loss": 1e6, "validation_accuracy": 0.1},
    ]
    plant(study, {"training.seed": 9}, metrics=lines, ended=False)
    exploded = loss_top(read_runs([study]))
    assert calm is not None
    assert exploded is not None
    assert calm < exploded < 4 * calm
