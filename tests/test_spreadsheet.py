"""CSV that a spreadsheet does not compute."""

from __future__ import annotations

import csv
import io

import pytest

from eureka.spreadsheet import plain, write_csv

FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"]
TEXTS = ["softmax", "it's", "'quoted'", "", "a=b", "1e-3"]


@pytest.mark.parametrize("text", [*FORMULAS, *TEXTS])
def test_a_text_comes_back_as_it_was_and_never_begins_as_a_formula(text: str) -> None:
    [row] = csv.DictReader(io.StringIO(write_csv(["cell"], [{"cell": text}]), newline=""))
    assert plain(row["cell"]) == text
    assert not row["cell"].startswith(("=", "+", "-", "@", "\t"))


@pytest.mark.parametrize("value", [-0.5, "-0.5", "+3", -7, "-1e-3", float("-inf"), "-inf"])
def test_numbers_stay_numbers(value: float | str) -> None:
    [row] = csv.DictReader(io.StringIO(write_csv(["cell"], [{"cell": value}])))
    assert row["cell"] == str(value)


def test_a_header_is_marked_too() -> None:
    assert write_csv(["=x"], []) == "'=x\n"
