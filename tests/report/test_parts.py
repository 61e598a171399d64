"""Groups, tables, config, curves: each part says what the folders say."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from eureka.report.curve_data import curve_data, loss_top
from eureka.report.details import config_details, plateau, versions
from eureka.report.groups import Groups
from eureka.report.results import results_csv, results_table
from eureka.report.write import write_report
from eureka.runs import Metrics, find_runs

GroupsOf = Callable[[Path], Groups]


def test_fixes_are_colours_and_learning_rates_are_panels(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for lr in (1e-3, 3e-4):
        for fix in ("temperature", "softmax"):
            plant(tmp_path, {"training.lr": lr, "attention.name": fix})
    groups = groups_of(tmp_path)
    assert [fix.name for fix in groups.fixes] == ["softmax", "temperature"]
    assert groups.panels == ["lr 3e-4", "lr 1e-3"]
    assert groups.panel_word == "learning rate"


def test_settings_of_a_fix_make_it_another_and_settings_of_the_rest_another_panel(
    tmp_path: Path, plant: Any, groups_of: GroupsOf
) -> None:
    for tau in (0.5, 2):
        plant(tmp_path, {"attention.name": "temperature", "attention.tau": tau})
    plant(tmp_path, {"model.dim": 128}, leap=400)
    groups = groups_of(tmp_path)
    assert [fix.name for fix in groups.fixes] == ["softmax", "temperature (tau=0.5)", "temperature (tau=2)"]
    assert groups.panels == ["model.dim 64", "model.dim 128"]
    by_run = {
        (run.config.fix, run.config.flat.get("attention.tau")): (groups.fix_of(run).index, groups.panel_of(run))
        for run in groups.runs
    }
    assert by_run == {("softmax", None): (0, 1), ("temperature", 0.5): (1, 0), ("temperature", 2): (2, 0)}


def test_a_panel_is_named_by_all_that_distinguishes_it(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for lr in (1e-3, 3e-4):
        plant(tmp_path, {"training.lr": lr, "model.dim": 128 if lr == 1e-3 else 64})
    assert groups_of(tmp_path).panels == ["lr 3e-4 · model.dim 64", "lr 1e-3 · model.dim 128"]


def test_the_table_shows_every_column_for_people(study: Path, groups_of: GroupsOf) -> None:
    table = results_table(groups_of(study))
    assert table is not None
    columns = ["fix", "learning rate", "seeds", "Eureka-ratio, 95 % interval", "median Eureka-step", "Eureka-step of each seed"]
    assert table.headings == [*columns, "accuracy after"]
    rows = [[f"{cell.fix.name if cell.fix else cell.text} {cell.small}".strip() for cell in row] for row in table.rows]
    assert rows[0][:-1] == ["softmax", "3e-4", "0, 1, 2", "0 of 3 0 – 71\N{NO-BREAK SPACE}%", "–", "– · – · –"]
    assert rows[1][:-1] == ["norm_softmax", "3e-4", "0, 1, 2", "3 of 3 29 – 100\N{NO-BREAK SPACE}%", "575", "525 · 575 · 600"]


def test_the_page_has_the_table_with_its_headings(study: Path, tmp_path: Path, parse: Any) -> None:
    page = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "norm_softmax 3e-4 0, 1, 2 3 of 3 29 – 100 % 575 525 · 575 · 600" in page.text
    labels = [attributes["data-label"] for name, attributes in page.elements if name == "td" and "data-label" in attributes]
    place = labels.index("seeds")
    assert labels[place - 2 : place + 1] == ["fix", "learning rate", "seeds"]


def test_the_csv_holds_every_cell_with_all_digits(study: Path, tmp_path: Path, parse: Any, groups_of: GroupsOf) -> None:
    cells = groups_of(study).cells
    page = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8"))
    [link] = [attributes for _, attributes in page.elements if attributes.get("download") == "eureka.csv"]
    assert unquote(link["href"].split(",", 1)[1]) == results_csv(cells)
    for line, cell in zip(csv.DictReader(io.StringIO(results_csv(cells))), cells, strict=True):
        assert (line["fix"], float(line["lr"]), float(line["eureka_ratio"])) == (cell.fix, cell.lr, cell.eureka_ratio)
        assert [int(step) if step else None for step in line["eureka_steps"].split(";")] == cell.eureka_steps
        assert [float(accuracy) for accuracy in line["final_accuracy"].split(";")] == cell.final_accuracy
        assert (float(line["eureka_ratio_low"]), float(line["eureka_ratio_high"])) == cell.eureka_ratio_interval


def test_what_differs_is_told_apart_from_what_is_common(study: Path, groups_of: GroupsOf) -> None:
    found = config_details(groups_of(study).runs)
    varied, common = dict(found.varied), dict(found.common)
    assert varied == {"attention.name": "norm_softmax, softmax", "training.seed": "0, 1, 2"}
    assert common["training.lr"] == "0.0003"
    assert not set(varied) & set(common)


def test_runs_made_with_several_versions_say_so(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(tmp_path, environment={"torch": "2.4.0"})
    plant(tmp_path, {"training.seed": 1}, environment={"torch": "2.13.0"})
    assert versions(groups_of(tmp_path).runs) == [("torch", "2.4.0, 2.13.0")]


def test_the_definition_tells_the_thresholds_of_this_task(study: Path, tmp_path: Path, parse: Any) -> None:
    text = parse(write_report([study], tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "accuracy is at least 77.5 % and its loss below 0.624." in text


def test_tasks_with_several_plateaus_have_no_one_threshold(study: Path, plant: Any, groups_of: GroupsOf) -> None:
    [*levels] = find_runs(study)[0].levels()
    plant(study, {"task.decisions": 1}, levels=[levels[0], levels[0], levels[1]])
    assert plateau(groups_of(study).runs) is not None, "the same last plateau"
    plant(study, {"task.decisions": 3}, levels=[levels[1], levels[1]])
    assert plateau(groups_of(study).runs) is None


def test_every_logged_value_is_in_the_curves(real_study: Path, groups_of: GroupsOf) -> None:
    data = curve_data(groups_of(real_study))
    assert len(data.runs) == 4
    for folder, run in zip(find_runs(real_study), data.runs, strict=True):
        metrics = folder.metrics()
        assert data.steps[run.steps] == [line.step for line in metrics]
        for curve, column in [
            (run.loss, "validation_loss"),
            (run.accuracy, "validation_accuracy"),
            (run.train_loss, "train_loss"),
            (run.train_accuracy, "train_accuracy"),
        ]:
            assert curve == pytest.approx([getattr(line, column) for line in metrics], rel=1e-4)
    assert len(data.steps) == 1
    assert data.panels[0].levels == folder.levels()


def test_leaps_stand_on_their_curve(study: Path, groups_of: GroupsOf) -> None:
    data = curve_data(groups_of(study))
    leaps = [(run, leap) for run in data.runs for leap in run.leaps]
    assert len(leaps) == 3
    for run, leap in leaps:
        place = data.steps[run.steps].index(leap.step)
        assert (leap.loss, leap.accuracy, leap.last) == (run.loss[place], run.accuracy[place], True)
        assert leap.onset <= leap.step


def test_a_long_log_keeps_its_leaps(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant(tmp_path, {"training.steps": 12_000}, leap=5000, log_every=4)
    data = curve_data(groups_of(tmp_path))
    [run] = data.runs
    assert len(data.steps[run.steps]) < 3000
    assert {run.leaps[0].step, run.leaps[0].onset} <= set(data.steps[run.steps])


def test_what_is_not_finite_is_a_gap_and_the_page_stays_json(tmp_path: Path, plant: Any, groups_of: GroupsOf, parse: Any) -> None:
    lines = [Metrics(25 * i, math.inf, 0.1, loss, 0.1, 3e-4) for i, loss in enumerate([2.3, math.nan, 1e9], start=1)]
    plant(tmp_path / "study", metrics=lines, ended=False)
    [run] = curve_data(groups_of(tmp_path / "study")).runs
    assert run.loss == [2.3, None, 1e9]
    assert run.train_loss == [None] * 3
    page = parse(write_report([tmp_path / "study"], tmp_path / "report.html").read_text(encoding="utf-8"))
    assert json.loads(page.scripts[0], parse_constant=pytest.fail)["runs"][0]["loss"] == [2.3, None, 1e9]


def test_one_run_that_explodes_does_not_press_the_others_flat(study: Path, plant: Any, groups_of: GroupsOf) -> None:
    calm = loss_top(groups_of(study).runs)
    lines = [Metrics(25, 2.2, 0.1, 2.2, 0.1, 3e-4), Metrics(50, 1e6, 0.1, 1e6, 0.1, 3e-4)]
    plant(study, {"training.seed": 9}, metrics=lines, ended=False)
    exploded = loss_top(groups_of(study).runs)
    assert calm is not None
    assert exploded is not None
    assert calm < exploded < 4 * calm
