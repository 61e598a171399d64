"""The tables of a study for programs: one line for each run, with whatever was varied and the outcome."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

import pytest

from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.runs import Leap, Outcome
from eureka.study.plan import Study
from eureka.study.summary import OUTCOMES, read_outcomes, summarise, write_runs

OUTCOME = Outcome("finished", 7, 7.0, 7, None, None, (), 7.0, 7.0)


def test_each_run_has_a_line_with_what_was_varied_and_its_outcome(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, {"training.seed": [0, 1], "training.batch_size": [4, 8]}, tmp_path)
    first, *others = study.prepare()
    first.write_result(OUTCOME)
    write_runs(summarise([first, *others]).runs, tmp_path / "runs.csv")
    with (tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = {
        "run": first.name,
        "attention.name": "norm_softmax",
        "training.lr": "0.001",
        "training.seed": "0",
        "training.batch_size": "4",
        **{key: "" if value is None else str(value) for key, value in asdict(OUTCOME).items() if key in OUTCOMES},
        "leaps": "none",
    }
    assert rows[0] == expected
    assert [(row["training.seed"], row["training.batch_size"]) for row in rows] == [
        ("0", "4"),
        ("0", "8"),
        ("1", "4"),
        ("1", "8"),
    ]
    assert all(row[key] == "" for row in rows[1:] for key in OUTCOMES)


def test_a_summary_counts_what_has_not_ended(tiny: RunConfig, tmp_path: Path) -> None:
    first, *others = Study.over(tiny, {"training.seed": [0, 1, 2]}, tmp_path).prepare()
    first.write_result(OUTCOME)
    summary = summarise([first, *others])
    assert (len(summary.runs), summary.unfinished, [cell.seeds for cell in summary.cells]) == (3, 2, [[0]])


def test_outcomes_come_back_from_the_table_and_a_run_that_has_not_ended_does_not(tiny: RunConfig, tmp_path: Path) -> None:
    first, second, other = Study.over(tiny, {"training.seed": [0, 1, 2]}, tmp_path).prepare()
    leapt = Outcome("stopped_early", 40, 1.25, 640, 30, 20, (Leap(0, 5, 10), Leap(1, 20, 30)), 0.1, 0.98)
    first.write_result(OUTCOME)
    second.write_result(leapt)
    write_runs(summarise([first, second, other]).runs, tmp_path / "runs.csv")
    assert read_outcomes(tmp_path / "runs.csv") == {first.name: OUTCOME, second.name: leapt}


def test_a_table_without_the_leaps_from_each_level_says_that_they_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text(f"run,{','.join(OUTCOMES)}\nx,finished,40,640,1.5,20,30,0.1,0.9\n")
    [found] = read_outcomes(tmp_path / "old.csv").values()
    assert (found.eureka_step, found.onset_step, found.moments) == (30, 20, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it has no column 'run'"),
        ("a,b\n1,2\n", "it has no column 'run'"),
        ("run,status\nx,finished\n", "it has no column 'steps'"),
        (f"run,{','.join(OUTCOMES)}\nx,finished,many,1,1,,,1,1\n", "a value of x is not what a study writes"),
        (f"run,{','.join(OUTCOMES)}\nx,perhaps,1,1,1,,,1,1\n", "a value of x is not what a study writes"),
    ],
)
def test_another_table_is_refused_in_one_sentence(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(RequestError, match=rf"other\.csv is not the runs\.csv of a study: {why}\.$"):
        read_outcomes(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ("finished,50,800,1,20,999999,0.1,0.9,", "eureka_step = 999999 and steps = 50"),
        ("finished,50,800,1,0,0,0.1,0.9,", "eureka_step = 0 and steps = 50"),
        ("finished,50,800,1,-5,-5,0.1,0.9,", "eureka_step = -5 and steps = 50"),
        ("finished,50,800,1,40,30,0.1,0.9,", "onset_step = 40 and eureka_step = 30"),
        ("finished,50,800,1,20,,0.1,0.9,", "onset_step = 20 and eureka_step = None"),
        ("finished,50,800,1,20,30,0.1,0.9,0 20 60", "the step of a leap = 60 and steps = 50"),
        ("finished,-50,800,1,,,0.1,0.9,", "steps = -50"),
        ("finished,50,-800,1,,,0.1,0.9,", "samples = -800"),
        ("finished,50,800,NaN,,,0.1,0.9,", "seconds = nan"),
        ("finished,50,800,1,,,NaN,0.9,", "final_loss = nan and status = finished"),
        ("stopped_early,50,800,1,20,30,Infinity,0.9,", "final_loss = inf and status = stopped_early"),
        ("finished,50,800,1,,,,0.9,", "final_loss = None and status = finished"),
        ("finished,50,800,1,,,0.1,NaN,", "final_accuracy = nan"),
    ],
)
def test_an_outcome_that_no_run_has_is_refused_with_its_run_and_value(tmp_path: Path, values: str, why: str) -> None:
    head = f"run,{','.join(OUTCOMES)},leaps\na,finished,50,800,1,20,30,0.1,0.9,\n"
    (tmp_path / "known.csv").write_text(f"{head}x,{values}\n")
    told = rf"known\.csv is not the runs\.csv of a study: x has {why}, which no run has\.$"
    with pytest.raises(RequestError, match=told):
        read_outcomes(tmp_path / "known.csv")


def test_a_run_that_diverged_needs_no_loss(tmp_path: Path) -> None:
    rows = "x,diverged,50,800,1,,,,\ny,diverged,50,800,1,50,50,NaN,0.1\n"
    (tmp_path / "known.csv").write_text(f"run,{','.join(OUTCOMES)}\n{rows}")
    assert [one.status for one in read_outcomes(tmp_path / "known.csv").values()] == ["diverged", "diverged"]
