"""The table of runs: one line each, whatever was varied, and what came of it."""

from __future__ import annotations

import csv
from pathlib import Path

from eureka.config import RunConfig
from eureka.study import Study
from eureka.study.table import OUTCOMES, write_runs


def test_each_run_has_a_line_with_what_was_varied_and_what_came_of_it(tiny: RunConfig, tmp_path: Path) -> None:
    study = Study.over(tiny, {"training.seed": [0, 1], "training.batch_size": [4, 8]}, tmp_path)
    first, *others = study.prepare()
    outcome = dict.fromkeys(OUTCOMES, 7) | {"status": "finished", "eureka_step": None}
    first.write("result.json", outcome)
    with write_runs([first, *others], tmp_path / "runs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    config = first.config() or {}
    assert len(rows) == 4
    assert rows[0] == {
        "run": first.name,
        "attention.name": config["attention"]["name"],
        "training.lr": str(config["training"]["lr"]),
        "training.seed": str(config["training"]["seed"]),
        "training.batch_size": str(config["training"]["batch_size"]),
        **{key: "" if value is None else str(value) for key, value in outcome.items()},
    }
    assert {(row["training.seed"], row["training.batch_size"]) for row in rows} == {
        ("0", "4"),
        ("0", "8"),
        ("1", "4"),
        ("1", "8"),
    }
    assert all(row[key] == "" for row in rows[1:] for key in OUTCOMES)
