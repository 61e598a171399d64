"""The picture of the windows shows the committed runs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.committed import RESULTS
from benchmarks.windows import (
    ARMS,
    DRAWN,
    FIXES,
    MARK,
    PICTURE,
    READMES,
    TABLES,
    WHOLE,
    digest,
    draw,
    filled,
    of_fixes,
    told,
    window,
)


def test_the_committed_picture_is_drawn_from_the_tables_of_today() -> None:
    with Image.open(PICTURE) as picture:
        assert picture.info["Description"] == digest(DRAWN), "python -m benchmarks.windows draws it"


def test_the_tables_of_the_readmes_are_those_of_today() -> None:
    texts = [readme.read_text(encoding="utf-8") for readme in READMES]
    assert {found[2] for text in texts for found in MARK.finditer(text)} == set(TABLES)
    assert texts == [filled(text) for text in texts], "python -m benchmarks.windows writes them"


def test_the_table_of_fixes_counts_the_rows_of_the_tables() -> None:
    lines = [line.strip("| \n").split(" | ") for line in of_fixes().splitlines()]
    assert [line[0] for line in lines[2:]] == list(FIXES.values())
    for column, name in enumerate(WHOLE):
        with (RESULTS / name / "runs.csv").open(encoding="utf-8", newline="") as table:
            rows = list(csv.DictReader(table))
        for line, fix in zip(lines[2:], FIXES, strict=True):
            for place, start in enumerate(("paper", "clear_positions")):
                runs = [row for row in rows if row["attention.name"] == fix and row["model.start"] == start]
                leaps = sum(row["eureka_step"] != "" for row in runs)
                assert line[1 + 2 * column + place] == f"{leaps} of {len(runs)}"


@pytest.mark.parametrize("name", DRAWN)
def test_a_panel_counts_the_rows_of_the_table(name: str) -> None:
    with (RESULTS / name / "runs.csv").open(encoding="utf-8", newline="") as table:
        rows = list(csv.DictReader(table))
    drawn = {
        (label, lr): (cell.leaps, len(cell.ended))
        for label, cells in window(name).lines.items()
        for lr, cell in zip(window(name).rates, cells, strict=True)
        if cell is not None
    }
    counted = dict[tuple[str, float], tuple[int, int]]()
    for row in rows:
        start = row.get("model.start") or "paper"
        label = row["attention.name"] + ("" if start == "paper" else f" (start={start})")
        leaps, runs = counted.get((label, float(row["training.lr"])), (0, 0))
        if label in ARMS:
            counted[label, float(row["training.lr"])] = (leaps + (row["eureka_step"] != ""), runs + 1)
    assert drawn == counted


def test_a_cell_tells_the_median_step_only_where_more_than_half_leapt() -> None:
    cells = [cell for cells in window("every_rate/tiles").lines.values() for cell in cells if cell is not None]
    assert any(2 * cell.leaps > len(cell.ended) for cell in cells)
    for cell in cells:
        assert (" · " in told(cell)) == (2 * cell.leaps > len(cell.ended))


def test_the_picture_says_which_tables_it_shows(tmp_path: Path) -> None:
    draw(DRAWN[:1], tmp_path / "one.png")
    with Image.open(tmp_path / "one.png") as picture:
        assert picture.info["Description"] == digest(DRAWN[:1]) != digest(DRAWN)
