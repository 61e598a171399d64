"""The picture of single heads in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eureka.report.write import write_report
from tests.report.test_head_figures import plant_heads

Page = Any
"""The page of conftest.py: one that is open in the browser."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, plant: Any) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    for fix, leap in (("softmax", None), ("norm_softmax", 500)):
        plant_heads(plant(folder / "study", {"attention.name": fix}, leap=leap), range(0, 1200, 50))
    return write_report([folder / "study"], folder / "report.html")


def test_every_head_is_drawn_beside_the_loss_and_the_run_that_leapt_comes_first(page: Page) -> None:
    from selenium.webdriver.support.select import Select

    titles = page.ask("return [...document.querySelectorAll('#heads .annotation-text')].map((one) => one.textContent)")
    assert titles[:4] == ["Validation loss", "Prefix matching", "Previous token", "Copying"]
    assert len(titles) == 6
    assert page.drawn("#heads") == 1 + (4 + 1) + 4 + 1 + 4 + 4, (
        "the loss; four heads and even attention; copying of one head alone"
    )
    shapes = "return document.getElementById('heads').layout.shapes.filter((one) => one.xref !== 'x domain').length"
    assert page.ask(shapes) >= 6, "the leap is marked in every picture"
    choice = Select(page.driver.find_element("id", "heads-run"))
    assert choice.first_selected_option.text == "norm_softmax · lr 3e-4 · seed 0"
    choice.select_by_index(0)
    page.until(lambda: page.ask(shapes) == 0)
    assert page.errors() == []


def test_the_best_head_is_drawn_beside_entropy_and_gradients(page: Page) -> None:
    first = """return document.getElementById('inside')._fullData.filter((t) => t.mode === 'lines' && t.yaxis === 'y3')[0].y"""
    assert page.ask(first) == pytest.approx([max(step / 1000, 0.1) for step in range(0, 1200, 50)])
    places = (
        "const l = document.getElementById('inside')._fullLayout; return [1, 2, 3, 4].map((i) => l[`yaxis${i > 1 ? i : ''}`])"
    )
    below = page.ask(f"{places}.map((one) => one.domain)")
    assert below[0] == below[1], "two pictures in a row"
    assert below[2] == below[3]
    assert below[2][1] < below[0][0] - 0.05, "and the others below them, with room for their headings"
    assert page.errors() == []


@pytest.mark.parametrize("width", [320, 390])
def test_nothing_sticks_out_on_a_phone(page: Page, width: int) -> None:
    page.width(width, mobile=True)
    page.until(lambda: page.ask("return document.querySelector('#heads .main-svg').clientWidth") <= width)
    assert page.ask("return document.documentElement.scrollWidth") == width
