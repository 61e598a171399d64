"""The tables of a study for programs: one line for each run, with whatever was varied and the outcome."""

from __future__ import annotations

import csv
from dataclasses import asdict
from pathlib import Path

from eureka.config import RunConfig
from eureka.runs import Outcome
from eureka.study.plan import Study
from eureka.study.summary import OUTCOMES, summarise, write_runs

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
