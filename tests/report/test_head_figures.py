"""What the page is given about single heads: the numbers of the run folders, few enough, and nothing that was not there."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eureka.report import head_figures as figures
from eureka.report.attention_figures import attention_figure
from eureka.report.groups import Groups
from eureka.report.head_figures import head_figures
from eureka.report.write import write_report
from eureka.runs import PositionShare, ProbeRecord, RecordLog, RunFolder, SiteRecord

GroupsOf = Callable[[Path], Groups]
TITLE = "What each head learned, and when"


def values(step: int, layer: int) -> dict[str, list[float]]:
    scores = {"prefix_matching": [step / 1000, 0.1], "prefix_chance": [0.07, 0.07], "previous_token": [0.2, 0.3]}
    copying = {} if layer == 0 else {"copying": [math.nan, 0.5]}
    return {"entropy": [0.9, 0.8], "grad_ratio": [0.1], **scores, **copying}  # two heads share their keys and values


def plant_heads(folder: RunFolder, steps: range = range(0, 500, 50)) -> None:
    log = RecordLog(folder.attention_file)
    log.open(0)
    for step in steps:
        sites = [SiteRecord(layer, f"blocks.{layer}", values(step, layer)) for layer in range(2)]
        log.append(ProbeRecord(step, sites, PositionShare(site="blocks.0", logits=[0.5, 0.5])))


def test_every_head_has_a_curve_and_what_a_group_shares_counts_for_each(tmp_path: Path, plant: Any, groups_of: GroupsOf) -> None:
    plant_heads(plant(tmp_path / "study", leap=300))
    [run] = head_figures(groups_of(tmp_path / "study"))
    assert (run.layers, run.heads) == (2, [(0, 0), (0, 1), (1, 0), (1, 1)])
    assert run.steps == list(range(0, 500, 50))
    assert run.prefix[2] == pytest.approx([step / 1000 for step in run.steps])
    assert run.chance == pytest.approx([0.07] * 10)
    assert run.ratio == [[0.1] * 10] * 4
    assert run.copying == [[None] * 10] * 3 + [[0.5] * 10]
    assert run.leap is not None
    page = write_report([tmp_path / "study"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert TITLE in page


def test_the_best_head_of_each_layer_stands_beside_those_of_other_fixes(
    tmp_path: Path, plant: Any, plant_attention: Any, groups_of: GroupsOf
) -> None:
    plant_heads(plant(tmp_path / "study", leap=300))
    plant_attention(plant(tmp_path / "study", {"attention.name": "norm_softmax"}))
    found = attention_figure(groups_of(tmp_path / "study"))
    assert found is not None
    assert found.has_prefixes
    scored, older = sorted(found.runs, key=lambda run: run.fix)
    assert scored.prefix == [[max(step / 1000, 0.1) for step in range(0, 500, 50)]] * 2
    assert older.prefix == []
    page = write_report([tmp_path / "study"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Prefix matching is that of the best head" in page


def test_older_runs_and_tasks_that_repeat_nothing_have_no_such_figure(tmp_path: Path, plant: Any, plant_attention: Any) -> None:
    plant_attention(plant(tmp_path / "study"))
    page = write_report([tmp_path / "study"], tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Inside attention" in page
    assert TITLE not in page
    assert "Prefix matching is" not in page


def test_long_runs_are_thinned_and_of_too_many_the_first_seeds_are_shown(
    tmp_path: Path, plant: Any, groups_of: GroupsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    for fix, seed in ((fix, seed) for fix in ("softmax", "norm_softmax") for seed in range(3)):
        plant_heads(plant(tmp_path / "study", {"attention.name": fix, "training.seed": seed}), range(0, 20_000, 20))
    monkeypatch.setattr(figures, "MOST", 4)
    monkeypatch.setattr(figures, "NUMBERS", 20_000)
    runs = head_figures(groups_of(tmp_path / "study"))
    assert [(run.name.split(" ·")[0], run.seed) for run in runs] == [(f, s) for f in ("softmax", "norm_softmax") for s in (0, 1)]
    assert all(20 <= len(run.steps) <= 300 and (run.steps[0], run.steps[-1]) == (0, 19_980) for run in runs)
