"""What the page is given about attention: the numbers of the run folders, few enough, and nothing that was not there."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.errors import DamagedRunError
from eureka.report import inside, write_report
from eureka.report.groups import group
from eureka.report.inside import inside_data
from eureka.report.maps import BYTES, MOST, map_data
from eureka.report.reading import read_runs
from eureka.report.readings import reading_data


@pytest.fixture
def folder(tmp_path: Path, plant: Any, plant_attention: Any) -> Path:
    """A run without a leap and one with; the third says nothing about attention."""
    plant_attention(plant(tmp_path / "study"))
    plant_attention(plant(tmp_path / "study", {"attention.name": "norm_softmax"}, leap=500), leap=500)
    plant(tmp_path / "study", {"training.seed": 1})
    return tmp_path / "study"


def test_the_curves_are_means_over_heads_of_each_layer(folder: Path) -> None:
    data = inside_data(group(read_runs([folder])))
    assert data is not None
    assert data["layers"] == 2
    assert [(run["fix"], run["seed"], run["leap"] is not None) for run in data["runs"]] == [(1, 0, True), (0, 0, False)]
    plain = data["runs"][1]
    assert data["steps"][plain["steps"]] == list(range(0, 1200, 50))
    assert plain["entropy"][0] == pytest.approx([0.98] * 24)
    assert plain["entropy"][1] == pytest.approx([0.93] * 24)
    assert plain["ratio"][1] == pytest.approx([0.1] * 24), "a head without a number is left out of the mean"


def test_a_large_study_stays_small(tmp_path: Path, plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(0)
    for seed in range(4):
        run = plant(tmp_path / "study", {"training.seed": seed})
        lines = ({"step": step, "sites": [noise(draw, 0), noise(draw, 1)]} for step in range(0, 50_000, 50))
        run.attention_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(inside, "NUMBERS", 3_000)
    data = inside_data(group(read_runs([tmp_path / "study"])))
    assert data is not None
    assert 1_500 < sum(len(curve) for run in data["runs"] for name in ("entropy", "ratio") for curve in run[name]) <= 3_000
    assert (data["steps"][0][0], data["steps"][0][-1]) == (0, 49_950)


def noise(draw: random.Random, layer: int) -> dict[str, Any]:
    values = {name: [draw.random(), draw.random()] for name in ("entropy", "grad_ratio")}
    return {"index": layer, "name": str(layer), "values": values}


def weights(record: dict[str, Any]) -> np.ndarray[Any, Any]:
    """What the script makes of the bytes."""
    coded = np.frombuffer(base64.b64decode(record["data"]), np.uint8).astype(float)
    shape = [len(record["steps"]), *(record[name] for name in ("layers", "heads", "queries", "keys"))]
    return record["top"] * (coded.reshape(shape) / 255) ** 2


def test_the_maps_of_the_page_are_those_of_the_run(folder: Path) -> None:
    groups = group(read_runs([folder]))
    maps = map_data(groups)
    assert [groups.name_of(one["run"]) for one in maps] == ["norm_softmax · lr 3e-4 · seed 0", "softmax · lr 3e-4 · seed 0"]
    for one in maps:
        files = groups.runs[one["run"]].folder.maps()
        assert one["steps"] == list(files) == list(range(0, 1201, 200))
        exact = np.stack([np.load(path) for path in files.values()]).astype(float)
        assert weights(one) == pytest.approx(exact, abs=0.005)
    assert (maps[0]["leap"]["step"], maps[1]["leap"]) == (groups.runs[maps[0]["run"]].leap["step"], None)  # type: ignore[index]


@pytest.mark.parametrize(("given", "expected"), [(5, list("abcde")), (4, ["class token", *"abcd"]), (3, [])])
def test_tokens_are_called_as_the_task_calls_them_after_a_class_token(folder: Path, given: int, expected: list[str]) -> None:
    runs = read_runs([folder])
    for run in runs:
        run.folder.write("task.json", {"levels": run.levels, "tokens": list("abcde")[:given]})
    assert [one["tokens"] for one in map_data(group(read_runs([folder])))] == [expected] * 2


def test_one_run_of_each_fix_and_panel_is_shown_and_twelve_at_most(tmp_path: Path, plant: Any, plant_attention: Any) -> None:
    for rate in range(1, 15):
        for seed in range(2):
            plant_attention(plant(tmp_path / "study", {"training.lr": rate / 1000, "training.seed": seed}))
    groups = group(read_runs([tmp_path / "study"]))
    chosen = [one["run"] for one in map_data(groups)]
    assert len(chosen) == MOST
    assert len({groups.panel_of[run] for run in chosen}) == MOST


def test_large_maps_are_shown_of_fewer_runs_and_steps(tmp_path: Path, plant: Any) -> None:
    for rate in (1e-3, 1e-4):
        run = plant(tmp_path / "study", {"training.lr": rate})
        run.map_file(0).parent.mkdir()
        for step in range(0, 1201, 60):
            np.save(run.map_file(step), np.full((7, 4, 80, 80), step / 1200, np.float16))
    [one] = map_data(group(read_runs([tmp_path / "study"])))
    assert len(base64.b64decode(one["data"])) <= BYTES
    assert (one["steps"][0], one["steps"][-1]) == (0, 1200)
    assert len(one["steps"]) > 2


def test_weights_that_are_no_distribution_are_shown_by_their_size(tmp_path: Path, plant: Any) -> None:
    run = plant(tmp_path / "study")
    run.map_file(0).parent.mkdir()
    np.save(run.map_file(0), np.array([[[[-4.0, 1.0], [np.inf, np.nan]]]], np.float16))
    [one] = map_data(group(read_runs([tmp_path / "study"])))
    assert weights(one).ravel() == pytest.approx([4, 1, 0, 0], abs=0.02)


@pytest.mark.parametrize("content", [b"nonsense", b"", b"pickled"])
def test_a_damaged_map_is_a_sentence_and_nothing_in_it_is_run(folder: Path, content: bytes) -> None:
    path = next(iter(folder.glob("softmax*/attention/step-000000400.npy")))
    path.write_bytes(content)
    if content == b"pickled":
        np.save(path, np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedRunError, match=r"step-000000400\.npy does not hold the attention weights of this run; delete it"):
        map_data(group(read_runs([folder])))


def test_what_was_read_off_is_a_picture_for_each_answer(folder: Path) -> None:
    pictures = reading_data(group(read_runs([folder])))
    assert [(one["name"], one["chance"], len(one["lines"])) for one in pictures] == [("indicator_1", 0.5, 4), ("label", 0.5, 4)]
    line = next(line for line in pictures[0]["lines"] if line["fix"] == 0 and line["when"] == "before")
    assert (line["step"], line["layers"], line["accuracy"]) == (400, [1, 2], [0.5, pytest.approx(0.49)])


def test_without_whole_blocks_the_head_that_tells_most_counts(tmp_path: Path, plant: Any) -> None:
    run = plant(tmp_path / "study")
    heads = [
        {"answer": "a", "layer": 0, "head": h, "representation": "z", "accuracy": x, "chance": 0.1}
        for h, x in enumerate((0.3, 0.7))
    ]
    lost = {"answer": "b", "layer": 0, "head": 0, "representation": "z", "accuracy": None, "chance": None}
    run.write("probes.json", {"linear": {"after": {"step": 3, "found": [*heads, lost]}}})
    [picture] = reading_data(group(read_runs([tmp_path / "study"])))
    assert (picture["name"], picture["lines"][0]["accuracy"]) == ("a", [0.7])


def test_the_page_has_the_part_only_where_a_run_says_something(folder: Path, tmp_path: Path, plant: Any, parse: Any) -> None:
    page = parse(write_report([folder], tmp_path / "with.html").read_text(encoding="utf-8"))
    assert "Inside attention" in page.text
    assert {"inside", "maps", "readings"} <= {attributes.get("id") for _, attributes in page.elements}
    plant(tmp_path / "silent")
    silent = parse(write_report([tmp_path / "silent"], tmp_path / "without.html").read_text(encoding="utf-8"))
    assert "Inside attention" not in silent.text
    assert "probe" not in silent.text


def test_old_runs_and_new_ones_are_one_study(tmp_path: Path, plant: Any) -> None:
    """A setting that only decides what is written about a run, and which older runs do not have, sets no runs apart."""
    plant(tmp_path / "study")
    plant(tmp_path / "study", {"training.seed": 1, "training.probe_every": 50})
    groups = group(read_runs([tmp_path / "study"]))
    assert (len(groups.panels), len(groups.settings), len(groups.rows)) == (1, 1, 1)
