"""The picture of the windows shows the committed runs."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.committed import RESULTS
from benchmarks.windows import ARMS, DRAWN, PICTURE, README, digest, draw, filled, table, told, window


def test_the_committed_picture_is_drawn_from_the_tables_of_today() -> None:
    with Image.open(PICTURE) as picture:
        assert picture.info["Description"] == digest(DRAWN), "python -m benchmarks.windows draws it"


def test_the_table_of_the_readme_is_that_of_today() -> None:
    text = README.read_text(encoding="utf-8")
    assert table(DRAWN) in text
    assert text == filled(text), "python -m benchmarks.windows writes it"


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
