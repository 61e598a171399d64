"""How a running study is told: runs by state, progress, time left; what is read and what is not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from eureka.report.live import study as live
from eureka.report.live.state import LiveState
from eureka.report.live.study import LiveStudy
from eureka.runs import Metrics, RunFolder


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE", 0.0)
    monkeypatch.setattr(live, "REST", 0.0)


def phases(state: LiveState) -> dict[str, int]:
    return {one.phase: one.runs for one in state.phases}


def test_runs_are_counted_by_state_and_steps_by_run(tmp_path: Path, plant: Any) -> None:
    plant(tmp_path, {"training.seed": 0}, leap=400)
    plant(tmp_path, {"training.seed": 1}, ended=False, reached=300)
    plant(tmp_path, {"training.seed": 2}, ended=False, metrics=[])
    with plant(tmp_path, {"training.seed": 3}, ended=False, reached=300).held():
        state = LiveStudy(tmp_path, "title").state()
    assert phases(state) == {"learning": 1, "interrupted": 1, "waiting": 1, "ended": 1}
    assert (state.runs, state.ended, state.share) == (4, 1, (1200 + 300 + 300) / 4800)
    assert [line.name for line in state.lines] == [f"softmax, lr 0.0003, seed {seed}" for seed in range(4)]
    assert [line.text for line in state.lines] == ["Eureka at step 400", "interrupted at step 300", "waiting", "learning"]


def test_the_time_left_is_judged_by_the_runs_that_have_ended(tmp_path: Path, plant: Any) -> None:
    study = LiveStudy(tmp_path, "title")
    with plant(tmp_path, {"training.seed": 1}, ended=False, reached=300).held():
        assert study.state().left == "time left: not known yet"
        plant(tmp_path, {"training.seed": 0}, leap=400)  # it took 61.4 seconds
        assert study.state().left == "about 47 s left"
    assert study.state().left == "nobody is at work on the others; the command that began them goes on with them"


def test_a_study_whose_runs_have_all_ended_says_so(study: Path) -> None:
    assert LiveStudy(study, "title").state().left == "all runs have ended"


def test_an_empty_folder_is_a_study_to_come(tmp_path: Path, parse: Any) -> None:
    study = LiveStudy(tmp_path, "title")
    assert (study.state().runs, study.state().share) == (0, 0.0)
    assert "There are no runs here yet." in parse(study.document(whole=True)).text


def test_only_a_run_that_has_changed_is_read_again(study: Path, monkeypatch: pytest.MonkeyPatch, plant: Any) -> None:
    followed = LiveStudy(study, "title")
    before = followed.state()
    read: list[str] = []
    metrics = RunFolder.metrics

    def counted(folder: RunFolder) -> list[Metrics]:
        read.append(folder.name)
        return metrics(folder)

    monkeypatch.setattr(RunFolder, "metrics", counted)
    assert followed.state() == before
    assert read == []
    new = plant(study, {"training.seed": 3}, ended=False, reached=300)
    assert followed.state().mark != before.mark
    assert read == [new.name]


def test_looking_writes_nothing(study: Path) -> None:
    def tree() -> dict[str, tuple[int, int]]:
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in [study, *study.rglob("*")]}

    before = tree()
    followed = LiveStudy(study, "title")
    followed.state()
    followed.document(whole=True)
    assert tree() == before


def test_a_damaged_run_is_told_and_the_others_are_shown(study: Path, parse: Any) -> None:
    broken = sorted(study.iterdir())[0]
    (broken / "metrics.jsonl").write_text("{}\n")
    followed = LiveStudy(study, "title")
    assert phases(followed.state()) == {"ended": 5, "unreadable": 1}
    assert "is not what a run writes" in followed.state().lines[0].text
    assert "5 runs" in parse(followed.document(whole=False)).text


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "attention"])
def test_a_link_that_leads_out_of_the_study_is_not_followed(tmp_path: Path, plant: Any, name: str) -> None:
    study, outside = tmp_path / "study", tmp_path / "outside"
    plant(study, {"training.seed": 0}, leap=400)
    linked, secret = plant(study, {"training.seed": 1}, leap=400), plant(outside, {"task.name": "secret"}, leap=400)
    target = secret.path / name
    target.exists() or target.mkdir()
    (linked.path / name).unlink(missing_ok=True)
    (linked.path / name).symlink_to(target)
    (study / "elsewhere").symlink_to(outside)
    followed = LiveStudy(study, "title")
    assert (followed.state().runs, followed.state().note) == (1, "1 run left out: links in its folder lead elsewhere.")
    assert "secret" not in followed.document(whole=False)


def test_a_link_within_the_study_is_followed(study: Path) -> None:
    run = sorted(study.iterdir())[0]
    (run / "metrics.jsonl").rename(study / "moved.jsonl")
    (run / "metrics.jsonl").symlink_to(study / "moved.jsonl")
    assert LiveStudy(study, "title").state().runs == 6


def test_of_very_many_runs_those_at_work_are_listed_first(tmp_path: Path, plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eureka.report.live.state.MOST_LINES", 5)
    for seed in range(5):
        plant(tmp_path, {"training.seed": seed}, ended=False, metrics=[], name=f"waiting-{seed}")
    with plant(tmp_path, {"training.seed": 5}, ended=False, reached=300, name="zz").held():
        state = LiveStudy(tmp_path, "title").state()
    assert (len(state.lines), state.more, state.lines[0].phase) == (5, "1 more run", "learning")


def test_the_state_is_json_without_surprises(study: Path) -> None:
    document = json.loads(json.dumps(LiveStudy(study, "title").state(), default=vars, allow_nan=False))
    assert document["ended"] == 6
    assert os.fspath(study) not in json.dumps(document)
