"""What the page is given about attention: the numbers of the run folders, few enough, and nothing that was not there."""

from __future__ import annotations

import base64
import itertools
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.errors import DamagedRunError
from eureka.report import attention_figures
from eureka.report.attention_figures import (
    FRAMES,
    MAP_BYTES,
    AttentionMaps,
    attention_figure,
    attention_maps,
    maps_left_out,
    reading_pictures,
)
from eureka.report.groups import Groups
from eureka.report.write import write_report
from eureka.runs import Probes, Readings, TaskRecord, find_runs

GroupsOf = Callable[[Path], Groups]


@pytest.fixture
def folder(tmp_path: Path, plant: Any, plant_attention: Any) -> Path:
    """A run without a leap and one with; the third says nothing about attention."""
    plant_attention(plant(tmp_path / "study"))
    plant_attention(plant(tmp_path / "study", {"attention.name": "norm_softmax"}, leap=500), leap=500)
    plant(tmp_path / "study", {"training.seed": 1})
    return tmp_path / "study"


def test_the_curves_are_means_over_heads_of_each_layer(folder: Path, groups_of: GroupsOf) -> None:
    data = attention_figure(groups_of(folder))
    assert data is not None
    assert data.layers == 2
    assert [(run.fix, run.seed, run.leap is not None) for run in data.runs] == [(1, 0, True), (0, 0, False)]
    plain = data.runs[1]
    assert data.steps[plain.steps] == list(range(0, 1200, 50))
    assert plain.entropy[0] == pytest.approx([0.98] * 24)
    assert plain.entropy[1] == pytest.approx([0.93] * 24)
    assert plain.ratio[1] == pytest.approx([0.1] * 24), "a head without a number is left out of the mean"


def test_the_position_share_is_a_mean_over_heads_and_absent_in_older_runs(
    tmp_path: Path, plant: Any, plant_attention: Any, groups_of: GroupsOf
) -> None:
    plant_attention(plant(tmp_path / "study"))
    plant_attention(plant(tmp_path / "study", {"training.seed": 1}), shares=False)
    data = attention_figure(groups_of(tmp_path / "study"))
    assert data is not None
    assert [run.share for run in data.runs] == [pytest.approx([0.2] * 24), []]
    page = write_report([tmp_path / "study"], tmp_path / "new.html").read_text(encoding="utf-8")
    assert "whether it learns, and what it goes by" in page
    assert "The position share says by what the first attention tells tokens apart" in page


def test_a_study_of_older_runs_says_nothing_about_positions(tmp_path: Path, plant: Any, plant_attention: Any) -> None:
    plant_attention(plant(tmp_path / "study"), shares=False)
    page = write_report([tmp_path / "study"], tmp_path / "old.html").read_text(encoding="utf-8")
    assert "How even attention is, and whether it learns" in page
    assert "The position share says" not in page


def test_a_large_study_stays_small(tmp_path: Path, plant: Any, monkeypatch: pytest.MonkeyPatch, groups_of: GroupsOf) -> None:
    draw = random.Random(0)
    for seed in range(4):
        run = plant(tmp_path / "study", {"training.seed": seed})
        lines = ({"step": step, "sites": [noise(draw, 0), noise(draw, 1)]} for step in range(0, 50_000, 50))
        run.attention_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(attention_figures, "NUMBERS", 3_000)
    data = attention_figure(groups_of(tmp_path / "study"))
    assert data is not None
    assert 1_500 < sum(len(curve) for run in data.runs for curves in (run.entropy, run.ratio) for curve in curves) <= 3_000
    assert (data.steps[0][0], data.steps[0][-1]) == (0, 49_950)


def noise(draw: random.Random, layer: int) -> dict[str, Any]:
    values = {name: [draw.random(), draw.random()] for name in ("entropy", "grad_ratio")}
    return {"index": layer, "name": str(layer), "values": values}


def weights(maps: AttentionMaps) -> np.ndarray[Any, Any]:
    """What the script makes of the bytes."""
    coded = np.frombuffer(base64.b64decode(maps.data), np.uint8).astype(float)
    shape = [len(maps.steps), maps.layers, maps.heads, maps.queries, maps.keys]
    decoded: np.ndarray[Any, Any] = maps.top * (coded.reshape(shape) / 255) ** 2
    return decoded


def test_the_maps_of_the_page_are_those_of_the_run(folder: Path, groups_of: GroupsOf) -> None:
    groups = groups_of(folder)
    maps = attention_maps(groups)
    assert [one.name for one in maps] == ["softmax · lr 3e-4 · seed 0", "norm_softmax · lr 3e-4 · seed 0"]
    for one in maps:
        [run] = [run for run in groups.runs if groups.name_of(run) == one.name]
        files = run.folder.maps()
        assert one.steps == list(files) == list(range(0, 1201, 200))
        exact = np.stack([np.load(path) for path in files.values()]).astype(float)
        assert weights(one) == pytest.approx(exact, abs=0.005)
        assert one.leap == run.moment
    assert [one.leap is None for one in maps] == [True, False]


@pytest.mark.parametrize(("given", "expected"), [(5, list("abcde")), (4, ["class token", *"abcd"]), (3, [])])
def test_tokens_are_called_as_the_task_calls_them_after_a_class_token(
    folder: Path, groups_of: GroupsOf, given: int, expected: list[str]
) -> None:
    for run in find_runs(folder):
        run.write_task(TaskRecord(run.levels(), list("abcde")[:given]))
    assert [one.tokens for one in attention_maps(groups_of(folder))] == [expected] * 2


def test_every_seed_has_its_maps(tmp_path: Path, plant: Any, plant_attention: Any, groups_of: GroupsOf) -> None:
    for fix, seed in itertools.product(("norm_softmax", "softmax"), range(4)):
        plant_attention(plant(tmp_path / "study", {"attention.name": fix, "training.seed": seed}))
    groups = groups_of(tmp_path / "study")
    maps = attention_maps(groups)
    assert [one.name for one in maps] == [
        f"{fix} · lr 3e-4 · seed {seed}" for fix in ("softmax", "norm_softmax") for seed in range(4)
    ]
    assert maps_left_out(groups, maps) == 0


def test_of_too_many_runs_the_first_seeds_of_all_are_shown(
    tmp_path: Path, plant: Any, plant_attention: Any, groups_of: GroupsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rate, seed in itertools.product((1e-3, 1e-4), range(4)):
        plant_attention(plant(tmp_path / "study", {"training.lr": rate, "training.seed": seed}))
    monkeypatch.setattr("eureka.report.attention_figures.MAP_BYTES", 5 * FRAMES * 2 * 2 * 5 * 5)
    groups = groups_of(tmp_path / "study")
    maps = attention_maps(groups)
    rates = ["1e-4 · seed 0", "1e-4 · seed 1", "1e-4 · seed 2", "1e-3 · seed 0", "1e-3 · seed 1"]
    assert [one.name for one in maps] == [f"softmax · lr {one}" for one in rates]
    assert maps_left_out(groups, maps) == 3


def test_large_maps_are_shown_of_fewer_runs_and_steps(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    for rate in (1e-3, 1e-4):
        run = plant(tmp_path / "study", {"training.lr": rate})
        run.map_file(0).parent.mkdir()
        for step in range(0, 1201, 60):
            np.save(run.map_file(step), np.full((7, 4, 60, 60), step / 1200, np.float16))
    [one] = attention_maps(groups_of(tmp_path / "study"))
    assert len(base64.b64decode(one.data)) <= MAP_BYTES
    assert (one.steps[0], one.steps[-1]) == (0, 1200)
    assert len(one.steps) > 2


def test_weights_that_are_no_distribution_are_shown_by_their_size(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    run = plant(tmp_path / "study")
    run.map_file(0).parent.mkdir()
    np.save(run.map_file(0), np.array([[[[-4.0, 1.0], [np.inf, np.nan]]]], np.float16))
    [one] = attention_maps(groups_of(tmp_path / "study"))
    assert weights(one).ravel() == pytest.approx([4, 1, 0, 0], abs=0.02)


@pytest.mark.parametrize("content", [b"nonsense", b"", b"pickled"])
def test_a_damaged_map_is_a_sentence_and_nothing_in_it_is_run(folder: Path, content: bytes, groups_of: GroupsOf) -> None:
    path = next(iter(folder.glob("softmax*/attention/step-000000400.npy")))
    path.write_bytes(content)
    if content == b"pickled":
        np.save(path, np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(DamagedRunError, match=r"step-000000400\.npy does not hold the attention weights of this run; delete it"):
        attention_maps(groups_of(folder))


def test_what_was_read_off_is_a_picture_for_each_answer(folder: Path, groups_of: GroupsOf) -> None:
    pictures = reading_pictures(groups_of(folder))
    assert [(one.name, one.chance, len(one.lines)) for one in pictures] == [("indicator_1", 0.5, 4), ("label", 0.5, 4)]
    line = next(line for line in pictures[0].lines if line.fix == 0 and line.when == "before")
    assert (line.step, line.layers, line.accuracy) == (400, [1, 2], [0.5, pytest.approx(0.49)])


def test_without_whole_blocks_the_head_that_tells_most_counts(
    tmp_path: Path, plant: Any, linear_probe: Any, groups_of: GroupsOf
) -> None:
    run = plant(tmp_path / "study")
    heads = [linear_probe(answer="a", head=head, representation="z", accuracy=x) for head, x in enumerate((0.3, 0.7))]
    lost = linear_probe(answer="b", head=0, representation="z", accuracy=math.nan, chance=math.nan)
    run.write_probes(Probes(linear={"after": Readings(3, [*heads, lost])}))
    [picture] = reading_pictures(groups_of(tmp_path / "study"))
    assert (picture.name, picture.lines[0].accuracy) == ("a", [0.7])


def test_the_page_has_the_part_only_where_a_run_says_something(folder: Path, tmp_path: Path, plant: Any, parse: Any) -> None:
    page = parse(write_report([folder], tmp_path / "with.html").read_text(encoding="utf-8"))
    assert "Inside attention" in page.text
    assert {"inside", "maps", "readings"} <= {attributes.get("id") for _, attributes in page.elements}
    plant(tmp_path / "silent")
    silent = parse(write_report([tmp_path / "silent"], tmp_path / "without.html").read_text(encoding="utf-8"))
    assert "Inside attention" not in silent.text
    assert "probe" not in silent.text


def test_old_runs_and_new_ones_are_one_study(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    """A setting that only decides what is written about a run, and which older runs do not have, sets no runs apart."""
    plant(tmp_path / "study")
    plant(tmp_path / "study", {"training.seed": 1, "training.probe_every": 50})
    groups = groups_of(tmp_path / "study")
    assert (len(groups.panels), len(groups.grouping.conditions), len(groups.cells)) == (1, 1, 1)
