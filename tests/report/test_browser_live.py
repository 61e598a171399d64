"""The page of `eureka watch` in a real browser: it changes without being loaded again, and keeps what the reader has chosen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="needs eureka[watch]")

from eureka.config import RunConfig
from eureka.report.live.server import new_token, serve
from eureka.report.live.study import LiveStudy
from eureka.study.plan import Study

HOSTILE = '</script><img src=x onerror="document.title=1">%{x}'
WORK = """
import pathlib, sys
from eureka.config import RunConfig
from eureka.experiment import run
from eureka.runs import find_runs
for folder in find_runs(pathlib.Path(sys.argv[1])):
    run(RunConfig.from_json(folder.config().parts), folder)
"""
Page = Any
"""The page of conftest.py."""


def visit(browser: Page, address: str) -> None:
    """Open the page and leave a sign that a reload would remove."""
    browser.prefer("light")
    browser.width(1280)
    browser.errors()
    browser.driver.get(address)
    browser.ask("window.sign = 1")


def told(browser: Page) -> str:
    return str(browser.ask("return document.getElementById('live-ended').textContent"))


def phases(browser: Page) -> list[str]:
    return list(browser.ask("return [...document.querySelectorAll('#live-phases li')].map((one) => one.textContent)"))


def steps_shown(browser: Page) -> list[float]:
    return list(browser.ask("return document.getElementById('plot').layout.xaxis.range"))


def zoom(browser: Page) -> list[float]:
    """Drag over the middle of the first picture, as a reader does; the steps that are shown then."""
    from selenium.webdriver.common.action_chains import ActionChains

    before, place = steps_shown(browser), browser.driver.find_element("css selector", "#plot .nsewdrag")
    browser.ask("arguments[0].scrollIntoView({block: 'center'})", place)
    ActionChains(browser.driver).move_to_element_with_offset(place, -60, 0).click_and_hold().move_by_offset(
        90, 0
    ).release().perform()
    browser.until(lambda: steps_shown(browser) != before)
    return steps_shown(browser)


@pytest.fixture(autouse=True)
def _leave(browser: Page) -> Iterator[None]:
    """Leave the page, which would go on asking a server that is gone."""
    yield
    browser.driver.get("about:blank")
    browser.errors()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address of its page."""
    folder = tmp_path / "study"
    folder.mkdir()
    with serve(LiveStudy(folder, "eureka watch study"), new_token(), "127.0.0.1", 0) as address:
        yield folder, address


def test_the_states_of_eight_runs_change_without_a_reload(browser: Page, followed: tuple[Path, str], tiny: RunConfig) -> None:
    folder, address = followed
    config = tiny.but({"training.steps": 120, "training.log_every": 20, "training.checkpoint_every": 60})
    grid = {"attention.name": ["softmax", "norm_softmax"], "training.seed": range(4)}
    Study.over(config, grid, folder, "tiles").prepare()
    visit(browser, address)
    browser.until(lambda: phases(browser) == ["8 waiting"])
    assert told(browser) == "0 of 8 runs ended"
    seen: set[str] = set()

    def all_ended() -> bool:
        seen.update(one.split(" ", 1)[1] for one in phases(browser))
        seen.add(told(browser))
        return told(browser) == "8 of 8 runs ended"

    work = subprocess.Popen([sys.executable, "-c", WORK, str(folder)])
    try:
        browser.until(all_ended, seconds=120)
    finally:
        work.wait(timeout=60)
    assert phases(browser) == ["8 ended"]
    assert {"waiting", "ended"} < seen
    assert seen & {"starting", "learning", "on a plateau", "past the Eureka-moment"}
    assert len([one for one in seen if one.endswith("runs ended")]) > 2  # none, all, and some in between
    browser.until(lambda: browser.drawn() == 16)
    assert "of 4" in browser.ask("return document.querySelector('.second').textContent")
    assert browser.ask("return document.getElementById('live-left').textContent") == "all runs have ended"
    assert browser.ask("return window.sign") == 1
    assert browser.errors() == []


def test_what_the_reader_has_chosen_stays_when_the_page_changes(
    browser: Page, followed: tuple[Path, str], plant: Any, plant_attention: Any
) -> None:
    folder, address = followed
    for fix in ("softmax", "norm_softmax"):
        plant_attention(plant(folder, {"attention.name": fix}, leap=400), 400)
    visit(browser, address)
    browser.until(lambda: browser.drawn() == 4)
    browser.click("#plot .legendtoggle", 1)
    browser.until(lambda: browser.drawn() == 2)
    browser.click("#train")
    browser.ask("document.querySelectorAll('main details')[1].open = true")
    zoomed = zoom(browser)
    browser.ask("const s = document.getElementById('map-step'); s.focus(); s.value = 2; s.dispatchEvent(new Event('input'))")
    browser.ask("window.scrollTo(0, 700)")
    plant(folder, {"training.seed": 1}, leap=600)
    browser.until(lambda: browser.ask("return document.querySelector('.subtitle').textContent").startswith("task tiles · 3 runs"))
    browser.until(lambda: browser.drawn() == 8)  # two runs of softmax, with their training curves
    assert browser.legend() == ["softmax", "norm_softmax"]
    assert browser.ask("return [...document.querySelectorAll('main details')].map((one) => one.open)") == [False, True, False]
    assert steps_shown(browser) == zoomed
    assert browser.ask("return [document.getElementById('map-step').value, window.sign, window.scrollY]") == ["2", 1, 700]
    assert browser.ask("return document.activeElement.id") == "map-step"
    browser.click("#plot .legendtoggle", 1)
    browser.until(lambda: browser.drawn() == 12)
    assert browser.errors() == []


def test_hostile_names_are_shown_and_do_nothing(browser: Page, followed: tuple[Path, str], plant: Any) -> None:
    folder, address = followed
    visit(browser, address)
    browser.until(lambda: told(browser) == "0 of 0 runs ended")
    plant(folder, {"attention.name": HOSTILE, "task.name": HOSTILE}, leap=400)
    browser.until(lambda: browser.drawn() == 2)
    browser.ask("document.getElementById('live-runs').open = true")
    assert HOSTILE in browser.ask("return document.getElementById('live-runs').innerText")
    assert browser.ask("return [document.querySelectorAll('img').length, document.title]") == [0, "1/1 · eureka watch study"]
    assert browser.errors() == []


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")])
def test_nothing_sticks_out_sideways(browser: Page, followed: tuple[Path, str], plant: Any, width: int, scheme: str) -> None:
    folder, address = followed
    plant(folder, {"attention.name": "norm_softmax"}, leap=400)
    plant(folder, ended=False, reached=300)
    visit(browser, address)
    browser.prefer(scheme)
    browser.width(width, mobile=width < 500)
    browser.until(lambda: browser.drawn() == 4)
    browser.ask("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    browser.until(lambda: browser.ask("return document.querySelector('#plot .main-svg').clientWidth") <= width)
    assert browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert browser.errors() == []


def test_a_server_that_is_gone_is_told(browser: Page, tmp_path: Path, plant: Any) -> None:
    plant(tmp_path, leap=400)
    with serve(LiveStudy(tmp_path, "title"), new_token(), "127.0.0.1", 0) as address:
        visit(browser, address)
        browser.until(lambda: told(browser) == "1 of 1 runs ended")
    browser.until(lambda: "does not answer" in browser.ask("return document.getElementById('live-note').textContent"))
    browser.errors()  # the browser logs that it could not connect
