"""The studies that are committed under results/: what they say follows from their runs today as it did then."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from benchmarks.committed import RESULTS, STUDIES, committed_runs
from eureka.study.arms import group_runs
from eureka.study.comparison import compare_arms
from eureka.study.summary import run_rows


def committed_rows(name: str) -> list[dict[str, str]]:
    with (RESULTS / name / "runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_and_the_comparisons_follow_from_the_runs(name: str) -> None:
    recorded = json.loads((RESULTS / name / "summary.json").read_text(encoding="utf-8"))
    grouping = group_runs(committed_runs(name))
    assert_close([cell.to_json() for cell in grouping.cells], recorded["rows"])
    found = {(one["fix"], str(one["setting"])): one for one in (each.to_json() for each in compare_arms(grouping))}
    assert_close(found, {(one["fix"], str(one["setting"])): one for one in recorded["comparisons"]})


@pytest.mark.parametrize("name", STUDIES)
def test_the_table_of_runs_has_the_same_columns_and_settings(name: str) -> None:
    rows = [{key: "" if value is None else str(value) for key, value in row.items()} for row in run_rows(committed_runs(name))]
    assert [list(row) for row in rows] == [list(row) for row in committed_rows(name)]
    assert rows == committed_rows(name)


def assert_close(found: Any, recorded: Any) -> None:
    """Equal, but for the last digits of floats."""
    if isinstance(recorded, dict):
        assert found.keys() == recorded.keys()
        found, recorded = [found[key] for key in recorded], list(recorded.values())
    if isinstance(recorded, list):
        assert len(found) == len(recorded)
        for one, other in zip(found, recorded, strict=True):
            assert_close(one, other)
    else:
        assert found == (pytest.approx(recorded, rel=1e-9) if isinstance(recorded, float) else recorded)
