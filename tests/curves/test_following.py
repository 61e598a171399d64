"""A log that grows: each event once, whatever the writer does to the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from eureka.curves.examination import Examination
from eureka.curves.following import GrowingLog, Notice, whole_lines
from tests.curves.layouts import LAYOUTS, Layout

T = np.arange(600)
LOSS = 2.0 - 1.5 / (1.0 + np.exp(-(T - 300) / 5.0)) + 0.02 * np.random.default_rng(0).standard_normal(600)
ROWS = [f"{10 * i},{value:.5f}\n" for i, value in zip(T, LOSS, strict=True)]
HEAD = "step,loss\n"
EXPECTED = ["plateau_entered", "eureka", "plateau_entered"]


def names(notices: list[Notice]) -> list[str]:
    return [notice.name for notice in notices]


def looked(log: GrowingLog) -> list[Notice]:
    notices, remark = log.look()
    assert remark is None
    return notices


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "log.csv"


def test_each_event_comes_once_wherever_the_writer_stops_within_a_line(file: Path) -> None:
    text, log, notices = HEAD + "".join(ROWS), GrowingLog(file, Examination()), []
    for end in [*range(40, len(text), 1501), len(text)]:
        file.write_text(text[:end])
        notices += looked(log)
    assert names(notices) == EXPECTED
    moment = notices[1].moment
    assert moment is not None
    assert notices[1].step == moment.steepest == pytest.approx(3000, abs=30)
    assert notices[0].plateau is not None
    assert notices[0].plateau.level == pytest.approx(2.0, abs=0.02)
    assert moment.after == pytest.approx(0.5, abs=0.15)  # its tail may still be to come when it is told
    assert looked(log) == []


@pytest.mark.parametrize("layout", LAYOUTS[::15], ids=lambda layout: layout.name)
def test_what_is_told_of_a_growing_log_of_any_format_is_what_hindsight_finds(layout: Layout, tmp_path: Path) -> None:
    path = layout.write(tmp_path)
    log, notices = GrowingLog(path, Examination()), []
    content = path.read_bytes() if path.is_file() else b""
    for end in (len(content) // 2 + 1, len(content)):
        if content:
            path.write_bytes(content[:end])
        notices += log.look()[0]
    assert (log.complaint is None) == (layout.refused is None)
    if layout.refused is None:
        found = [moment.steepest for finding in log.findings() for moment in finding.eurekas]
        told = [notice.step for notice in notices if notice.name == "eureka"]
        assert found
        assert sorted(told) == pytest.approx(sorted(found), rel=0.01)


def test_a_number_that_is_half_written_is_not_read(file: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "copy").mkdir()
    for whole, rest in [(HEAD + "0,1.5\n10,", ""), (HEAD + "0,1.5\r10,2", "")]:
        file.write_text(whole + rest)
        assert whole_lines(file, folder).read_bytes() == whole[: max(whole.rfind("\n"), whole.rfind("\r")) + 1].encode()
    for kept in ['[{"step": 1,\n "loss": 2', "{\n 1", "\0\n1"]:
        file.write_text(kept)
        assert whole_lines(file, folder).read_text() == kept


def test_a_metric_that_rises_is_told_in_its_own_values(file: Path) -> None:
    file.write_text("step,accuracy\n" + "".join(f"{10 * i},{0.6 - 0.25 * value:.5f}\n" for i, value in zip(T, LOSS, strict=True)))
    notices = looked(GrowingLog(file, Examination()))
    assert names(notices) == EXPECTED
    assert [notice.fields()["level"] for notice in notices] == pytest.approx([0.1, 0.1, 0.475], abs=0.02)
    assert "0.099 → 0.475" in notices[1].sentence()


def test_a_rate_in_the_log_explains_a_drop(file: Path) -> None:
    rows = "".join(f"{10 * i},{value:.5f},{0.1 if i < 295 else 0.01}\n" for i, value in zip(T, LOSS, strict=True))
    file.write_text(f"step,loss,lr\n{rows}")
    assert names(looked(GrowingLog(file, Examination()))) == ["plateau_entered", "lr_step", "plateau_entered"]


def test_a_file_that_is_shorter_than_it_was_is_read_anew(file: Path) -> None:
    log = GrowingLog(file, Examination())
    file.write_text(HEAD + "".join(ROWS))
    assert names(looked(log)) == EXPECTED
    file.write_text(HEAD + "".join(ROWS[:100]))
    notices, remark = log.look()
    assert remark == f"{file}: is shorter than it was, and is read anew"
    assert names(notices) == EXPECTED[:1]
    file.write_text(HEAD + "".join(ROWS))
    assert names(looked(log)) == EXPECTED[1:]


def test_another_file_of_the_same_name_is_read_anew(file: Path, tmp_path: Path) -> None:
    log = GrowingLog(file, Examination())
    file.write_text(HEAD + "".join(ROWS[:200]))
    assert names(looked(log)) == EXPECTED[:1]
    file.rename(tmp_path / "log.csv.1")
    assert looked(log) == []
    assert "no such file" in (log.complaint or "")
    file.write_text(HEAD + "".join(f"{10 * i},{value + 1.0:.5f}\n" for i, value in zip(T, LOSS, strict=True)))
    notices, remark = log.look()
    assert remark == f"{file}: holds other curves than before, and is read anew"
    assert names(notices) == EXPECTED
    assert log.complaint is None


def test_a_run_that_goes_back_to_a_checkpoint_tells_nothing_twice(file: Path) -> None:
    log = GrowingLog(file, Examination())
    file.write_text(HEAD + "".join(ROWS[:250]))
    assert names(looked(log)) == EXPECTED[:1]
    file.write_text(HEAD + "".join([*ROWS[:250], *ROWS[200:220]]))
    assert looked(log) == []
    file.write_text(HEAD + "".join([*ROWS[:250], *ROWS[200:]]))
    assert names(looked(log)) == EXPECTED[1:]


def test_a_run_that_is_appended_is_another_curve_and_the_first_is_known_again(file: Path) -> None:
    log = GrowingLog(file, Examination())
    file.write_text(HEAD + "".join(ROWS))
    assert names(looked(log)) == EXPECTED
    second = "".join(f"{10 * i},{value + 0.5:.5f}\n" for i, value in zip(T, LOSS, strict=True))
    file.write_text(HEAD + "".join(ROWS) + second)
    notices = looked(log)
    assert names(notices) == EXPECTED
    assert {notice.curve.run for notice in notices} == {"run 2"}


def test_a_document_that_is_half_written_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    text = json.dumps({"log_history": [{"step": int(10 * i), "loss": float(v)} for i, v in zip(T, LOSS, strict=True)]}, indent=2)
    log = GrowingLog(file, Examination())
    file.write_text(text[: len(text) // 2])
    assert looked(log) == []
    assert "not a JSON document" in (log.complaint or "")
    file.write_text(text)
    assert names(looked(log)) == EXPECTED
    [finding] = log.findings()
    assert finding.curve.file == str(file)


def test_values_that_are_no_numbers_any_more_are_told_once_and_two_of_them_are_not(file: Path) -> None:
    log, begun = GrowingLog(file, Examination()), HEAD + "".join(ROWS[:40])
    for count, told in [(2, []), (3, ["no_number"]), (9, [])]:
        file.write_text(begun + "".join(f"{10 * i},nan\n" for i in range(40, 40 + count)))
        notices = looked(log)
        assert names(notices) == told
    file.write_text(begun + "400,nan\n410,nan\n" + "".join(ROWS[42:50]))
    assert looked(log) == []
    file.write_text(begun + "400,nan\n410,nan\n" + "".join(ROWS[42:50]) + "500,inf\n510,inf\n520,inf\n530,inf\n540,inf\n")
    [notice] = looked(log)
    assert notice.sentence() == f"{file} · loss: no number (nan or inf) from step 500 on"
    assert notice.fields()["step"] == 500.0
    assert notice.fields()["level"] is None
