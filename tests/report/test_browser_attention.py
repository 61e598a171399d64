"""The pictures of attention in a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eureka.report.write import write_report
from eureka.runs import Probes, Readings, TaskRecord

Page = Any
"""The page of conftest.py: one that is open in the browser."""
FIXES, RATES = ["softmax", "norm_softmax"], [3e-4, 1e-3]
HOSTILE = '</script><img src=x onerror="document.title=1">%{x}<a href="https://x.org">b</a>'


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, plant: Any, plant_attention: Any) -> Path:
    folder = tmp_path_factory.mktemp("inside")
    for fix in FIXES:
        for rate in RATES:
            leap = None if fix == "softmax" else 500
            plant_attention(plant(folder / "study", {"attention.name": fix, "training.lr": rate}, leap=leap), leap)
    return write_report([folder / "study"], folder / "report.html")


def values(page: Page, place: str, field: str) -> list[Any]:
    return list(
        page.ask(f"return document.getElementById('{place}')._fullData.filter((t) => t.visible === true).map((t) => t.{field})")
    )


def test_every_run_has_three_curves_and_every_leap_a_mark_on_its_line(page: Page) -> None:
    assert page.drawn("#inside") == 3 * len(FIXES) * len(RATES)
    marks = page.ask("""return document.getElementById('inside')._fullData.filter((t) => t.mode === 'markers')
        .map((t) => [t.x.length, t.x[0], t.y[0], t.marker.symbol, t.yaxis])""")
    assert len(marks) == 3 * len(RATES)
    count, step, entropy, symbol, _ = marks[0]
    assert (count, symbol) == (1, "diamond")
    assert 450 <= step <= 600
    assert 0.5 < entropy < 0.95, "on the way from 0.955 down to 0.455"
    assert page.ask("return document.getElementById('inside')._fullLayout.yaxis3.type") == "log"
    assert page.errors() == []


def test_a_fix_that_is_hidden_is_hidden_here_too(page: Page) -> None:
    page.click("#plot .legendtoggle", 1)
    page.until(lambda: page.drawn("#inside") == 3 * len(RATES))
    assert set(values(page, "readings", "legendgroup")) == {"fix 0"}


def test_a_layer_can_be_chosen(page: Page) -> None:
    script = (
        "return document.getElementById('inside')._fullData.find((t) => t.mode === 'lines' && t.legendgroup === 'fix 0').y[0]"
    )
    assert page.ask(script) == pytest.approx(0.955)
    page.click("#inside ~ figcaption")  # nothing happens outside the controls
    share = "return document.getElementById('inside')._fullData.filter((t) => t.mode === 'lines' && t.yaxis === 'y5')[0].y[0]"
    assert page.ask(share) == pytest.approx(0.2)
    page.click("form:has(input[name=layer]) label", 2)
    page.until(lambda: page.ask(script) == pytest.approx(0.93))
    assert page.ask(share) == pytest.approx(0.2), "it is that of the first attention"
    page.click("form:has(input[name=layer]) label", 0)
    page.until(lambda: page.ask(script) == pytest.approx(0.955))


def test_the_choice_of_a_rate_is_followed(page: Page) -> None:
    page.click("form:has(#train) .segments label", 1)
    page.until(lambda: page.drawn("#inside") == 3 * len(FIXES))


def test_the_slider_works_by_keyboard_and_says_where_it_stands(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    label = "return document.getElementById('map-label').textContent"
    first = "return document.getElementById('maps')._fullData[0].customdata[0][0]"
    slider = page.driver.find_element("id", "map-step")
    assert page.ask(label).startswith("1,200: after the Eureka-moment at step ")
    sharp = page.ask(first)
    slider.send_keys(Keys.HOME)
    page.until(lambda: page.ask(label).startswith("0: before the Eureka-moment at step "))
    assert page.ask(first) == pytest.approx(0.2, abs=0.005), "even attention to five tokens"
    assert sharp > 0.9
    slider.send_keys(Keys.ARROW_RIGHT)
    page.until(lambda: page.ask(label).startswith("200: before"))
    assert slider.get_attribute("aria-valuetext") == page.ask(label)
    assert page.errors() == []


def test_another_run_can_be_chosen_for_the_maps(page: Page) -> None:
    from selenium.webdriver.support.select import Select

    choice = Select(page.driver.find_element("id", "map-run"))
    names = [option.text for option in choice.options]
    assert names == [f"{fix} · lr {rate} · seed 0" for fix in ("softmax", "norm_softmax") for rate in ("3e-4", "1e-3")]
    assert choice.first_selected_option.text == "norm_softmax · lr 3e-4 · seed 0"  # the first that leapt
    choice.select_by_index(1)
    label = "return document.getElementById('map-label').textContent"
    page.until(lambda: page.ask(label) == "1,200: no Eureka-moment in this run")
    assert len(values(page, "maps", "type")) == 4, "two layers of two heads"


def test_readings_are_dashed_before_and_solid_after_with_the_chance(page: Page) -> None:
    dashes = values(page, "readings", "line.dash")
    assert sorted(dashes) == ["6px,4px"] * 8 + ["solid"] * 8
    assert (
        page.ask("return document.getElementById('readings').layout.shapes.map((s) => [s.y0, s.line.dash])") == [[50, "dot"]] * 2
    )
    titles = page.ask("return [...document.querySelectorAll('#readings .annotation-text')].map((a) => a.textContent)")
    assert titles == ["chance", "indicator_1", "chance", "label"]


@pytest.mark.parametrize("width", [320, 390])
def test_nothing_sticks_out_on_a_phone(page: Page, width: int) -> None:
    page.width(width, mobile=True)
    for place in ("inside", "maps", "readings"):
        script = f"return document.querySelector('#{place} .main-svg').clientWidth"
        page.until(lambda script=script: page.ask(script) <= width)
    assert page.ask("return document.documentElement.scrollWidth") == width


def test_dark_mode_reaches_the_maps(page: Page) -> None:
    ground = "return document.getElementById('maps')._fullData[0].colorscale[0][1]"
    light = page.ask(ground)
    page.prefer("dark")
    page.until(lambda: page.ask(ground) != light)


def test_hostile_names_of_tokens_and_answers_are_shown_and_do_nothing(
    browser: Page, tmp_path: Path, plant: Any, plant_attention: Any, linear_probe: Any
) -> None:
    run = plant(tmp_path / "study", {"attention.name": HOSTILE}, leap=500)
    plant_attention(run, 500)
    run.write_task(TaskRecord(run.levels(), [f"{HOSTILE} {i}" for i in range(5)]))
    run.write_probes(Probes(linear={"after": Readings(1200, [linear_probe(answer=HOSTILE)])}))
    browser.open(write_report([tmp_path / "study"], tmp_path / "report.html"))
    browser.until(lambda: browser.ask("return document.querySelectorAll('#maps .hm image').length") == 4)
    assert browser.ask("return document.querySelectorAll('img, figure a').length") == 0
    assert browser.ask("return document.title") != "1"
    assert browser.errors() == []
