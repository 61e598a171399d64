"""The page in a real browser: Debian's chromium, driven through chromedriver; nothing is downloaded."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from eureka.report.write import write_report
from eureka.tasks.decision_rule import DecisionRule
from eureka.tasks.labelled import labelled_samples
from eureka.tasks.registry import TASKS

Page = Any
"""The page of conftest.py: one that is open in the browser."""
DOUBLE_CLICK = 0.7
"""Seconds after which a second click is not the second half of a double click."""
FIXES, RATES, SEEDS = ["softmax", "norm_softmax", "temperature"], [3e-4, 1e-3], 4
HOSTILE = '</script><img src=x onerror="document.title=1"><a href="https://example.org">%{x}</a>'
SLY = '<b>%{x}</b>&lt;<a href="https://x.org">{}</a>'
"""What Plotly would understand, short enough to be shown whole."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory, plant: Any) -> Path:
    """Three fixes, two rates, four seeds, of which two choose the rate; one run is not finished."""
    folder = tmp_path_factory.mktemp("browser")
    for fix in FIXES:
        for lr in RATES:
            for seed in range(SEEDS):
                changes = {"attention.name": fix, "training.lr": lr, "training.seed": seed}
                plant(folder / "study", changes, leap=None if fix == "softmax" else 300 + 100 * seed + 200 * FIXES.index(fix))
    last = plant(folder / "study", {"training.seed": SEEDS}, ended=False, reached=300)
    last.write_samples(labelled_samples(TASKS.build("tiles", {})))
    return write_report([folder / "study"], folder / "report.html")


RUNS = len(FIXES) * len(RATES) * SEEDS + 1


def test_the_page_has_no_console_error_and_asks_for_nothing_but_itself(page: Page, report: Path) -> None:
    page.click("#train")
    page.until(lambda: page.drawn() == 4 * RUNS)
    assert page.errors() == []
    assert {one for one in page.requests() if not one.startswith("data:")} == {report.as_uri()}


def test_an_error_on_the_page_would_be_seen(browser: Page, report: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(report.read_text(encoding="utf-8").replace("</main>", "</main><img src='https://example.invalid/a.png'>"))
    browser.open(broken)
    browser.until(lambda: browser.errors() != [])


def test_every_run_is_drawn_in_both_pictures_and_every_leap_is_marked(page: Page) -> None:
    assert page.drawn() == 2 * RUNS
    leaps = 2 * len(RATES) * SEEDS
    assert page.ask("return document.querySelectorAll('#plot .subplot path.point').length") == 2 * leaps


def test_the_plateau_is_drawn_at_its_level_and_named(page: Page) -> None:
    lines = page.ask("return document.getElementById('plot').layout.shapes.map((s) => [s.y0, s.y1, s.line.dash])")
    pictures = 2 * len(RATES)
    assert sum(line == [0.6238, 0.6238, "6px,4px"] or line[0] == pytest.approx(55) for line in lines) == pictures
    assert page.ask("return document.querySelectorAll('#plot .shapelayer path').length") == 2 * pictures  # and the floor
    texts = page.ask("return [...document.querySelectorAll('#plot .annotation-text')].map((a) => a.textContent)")
    assert "plateau0.624" in texts
    assert "plateau55 %" in texts


def test_several_plateaus_are_named_by_their_levels_alone_and_no_name_lies_on_another(
    browser: Page, plant: Any, tmp_path: Path
) -> None:
    plant(tmp_path / "study", leap=None, levels=DecisionRule(decisions=4).levels())
    browser.open(write_report([tmp_path / "study"], tmp_path / "report.html"))
    boxes = """return [...document.querySelectorAll('#plot .annotation')].map(a => [a.textContent, a.getBoundingClientRect()])
        .filter(([text]) => /^0\\.\\d+$/.test(text)).map(([text, box]) => [text, box.top, box.bottom])"""
    named = sorted(browser.ask(boxes), key=lambda found: float(found[1]))
    assert [text for text, _, _ in named] == ["0.624", "0.312", "0.156"]
    assert all(upper[2] <= lower[1] + 4 for upper, lower in itertools.pairwise(named)), named  # a box has room above and below


def test_a_click_on_the_legend_hides_a_fix_in_all_pictures_and_another_shows_it(page: Page) -> None:
    assert page.legend() == ["softmax", "norm_softmax", "temperature"]
    before = page.drawn_by_picture()
    assert sorted(before) == [len(FIXES) * SEEDS] * 2 + [len(FIXES) * SEEDS + 1] * 2
    page.click("#plot .legendtoggle", 1)
    page.until(lambda: page.drawn() == 2 * (RUNS - len(RATES) * SEEDS))
    assert page.drawn_by_picture() == [count - SEEDS for count in before]
    time.sleep(DOUBLE_CLICK)
    page.click("#plot .legendtoggle", 1)
    page.until(lambda: page.drawn() == 2 * RUNS)


def shown(page: Page) -> tuple[list[str], list[str], list[str]]:
    """The fixes whose waiting curve is drawn, whose line of the heat map is to be seen, whose name is not faint."""
    curves = """return document.getElementById('waiting')._fullData
        .filter((trace) => trace.visible === true && trace.line.shape === 'hv').map((trace) => trace.name)"""
    lines = """return [...document.querySelectorAll('.heat tr[data-fix]')]
        .filter((line) => line.offsetHeight).map((line) => line.cells[0].textContent)"""
    keys = "return [...document.querySelectorAll('.keys button[aria-pressed=true]')].map((k) => k.innerText.split(' ')[0])"
    assert page.drawn("#waiting") == len(page.ask(curves))
    return page.ask(curves), page.ask(lines), page.ask(keys)


def test_waiting_curves_begin_at_one_and_are_drawn_as_steps_with_bands(page: Page) -> None:
    assert shown(page) == (FIXES, FIXES, FIXES)
    traces = page.ask("return document.getElementById('waiting')._fullData.map((t) => [t.mode, t.x[0], t.y[0], t.legendgroup])")
    assert traces == [[mode, 0, 100, f"fix {i}"] for mode in ("none", "lines+markers") for i in range(len(FIXES))]
    filled = "return [...document.querySelectorAll('#waiting path.js-fill')].filter((p) => p.getTotalLength() > 0).length"
    assert page.ask(filled) == len(FIXES)


def test_one_click_hides_a_fix_in_every_picture_and_one_on_its_other_name_shows_it_again(page: Page) -> None:
    page.click("#plot .legendtoggle", 1)
    page.until(lambda: page.drawn("#waiting") == len(FIXES) - 1)
    assert shown(page) == (["softmax", "temperature"],) * 3
    page.click(".keys button", 1)
    page.until(lambda: page.drawn() == 2 * RUNS)
    assert shown(page) == (FIXES, FIXES, FIXES)
    assert page.errors() == []


def test_a_cell_of_the_heat_map_is_coloured_by_its_ratio_in_light_and_dark(page: Page) -> None:
    look = """return [0, 100].map((share) => document.querySelector(`.heat td[style="--share:${share}%"]`))
        .map((cell) => getComputedStyle(cell).backgroundColor)"""
    light = page.ask(look)
    page.prefer("dark")
    assert len({*light, *page.ask(look)}) == 4


def test_a_hidden_fix_stays_hidden_when_another_rate_is_chosen(page: Page) -> None:
    page.click("#plot .legendtoggle", 0)
    page.until(lambda: page.drawn() == 2 * len(RATES) * SEEDS * 2)
    page.click(".segments label", 2)
    page.until(lambda: page.drawn() == 2 * 2 * SEEDS)
    assert page.drawn_by_picture() == [2 * SEEDS] * 2


def test_a_double_click_on_the_legend_shows_a_fix_alone(page: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    def alone() -> bool:
        entry = page.driver.find_elements("css selector", "#plot .legendtoggle")[2]
        ActionChains(page.driver).double_click(entry).perform()  # a busy machine may make it two clicks, which undo each other
        time.sleep(1)
        return bool(page.drawn() == 2 * len(RATES) * SEEDS)

    page.until(alone, seconds=60)


def test_a_run_that_is_not_finished_is_dashed(page: Page) -> None:
    script = "return [...document.querySelectorAll('#plot path.js-line')].filter((p) => p.style.strokeDasharray).length"
    assert page.ask(script) == 2


def test_hovering_a_mark_tells_onset_step_and_seed(page: Page) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    mark = page.driver.find_element("css selector", "#plot path.point")
    page.ask("arguments[0].scrollIntoView({block: 'center'})", mark)
    ActionChains(page.driver).move_to_element(mark).perform()
    told = "return [...document.querySelectorAll('.hoverlayer .hovertext')].map((t) => t.textContent).join()"
    page.until(lambda: "Eureka-moment" in page.ask(told))
    run = page.ask("return JSON.parse(document.getElementById('study').textContent).runs.find((run) => run.fix == 1)")
    assert page.ask(told).startswith(f"norm_softmax · seed {run['seed']}")
    assert page.ask(told).endswith(f"step {run['leaps'][0]['step']}, onset {run['leaps'][0]['onset']}")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1400, "light"), (1400, "dark")])
def test_the_whole_page_has_no_console_error_and_no_sideways_scroll(page: Page, width: int, scheme: str) -> None:
    page.prefer(scheme)
    page.width(width, mobile=width < 500)
    page.until(lambda: page.ask("return document.querySelector('#plot .main-svg').clientWidth") <= width)
    page.ask("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.drawn() == 2 * RUNS
    assert page.ask("return [...document.images].filter((one) => one.naturalWidth > 0).length") == 3
    assert page.errors() == []


@pytest.mark.parametrize("width", [320, 768])
def test_nothing_sticks_out_sideways(page: Page, width: int) -> None:
    page.width(width, mobile=True)
    page.until(lambda: page.ask("return document.querySelector('#plot .main-svg').clientWidth") <= width)
    page.ask("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.ask("return document.documentElement.scrollWidth") == width
    assert page.drawn() == 2 * RUNS


def test_dark_mode_changes_paper_and_plot_while_the_page_is_open(page: Page) -> None:
    look = """const text = document.querySelector('#plot .legendtext'), line = document.querySelector('#plot path.js-line');
        return [getComputedStyle(document.body).backgroundColor, getComputedStyle(text).fill, line.style.stroke,
                getComputedStyle(document.querySelector('#plot .main-svg')).backgroundColor]"""
    light = page.ask(look)
    assert light[0] == light[3] == "rgb(255, 255, 255)"
    page.prefer("dark")
    page.until(lambda: page.ask(look)[1] != light[1])
    dark = page.ask(look)
    assert all(ours != theirs for ours, theirs in zip(dark, light, strict=True))
    assert dark[0] == dark[3]


def test_hostile_names_are_shown_and_do_nothing(browser: Page, tmp_path: Path, plant: Any) -> None:
    for fix, lr, seed in itertools.product(["softmax", HOSTILE, SLY], [1e-3, 1e-4], range(4)):
        changes = {"attention.name": fix, "training.seed": seed, "training.lr": lr, "task.name": HOSTILE}
        plant(tmp_path / "study", changes, leap=400)
    browser.open(write_report([tmp_path / "study"], tmp_path / "report.html", title=HOSTILE))
    assert browser.legend() == ["softmax", HOSTILE[:47] + "…", SLY]
    assert shown(browser)[1] == ["softmax", HOSTILE, SLY]
    assert HOSTILE in browser.ask("return document.querySelector('.verdicts').textContent")
    assert HOSTILE in browser.ask("return document.querySelectorAll('.keys button')[1].textContent")
    assert browser.ask("return document.querySelectorAll('img, #plot a, #waiting a').length") == 0
    assert browser.ask("return document.title") == HOSTILE
    assert browser.errors() == []


def test_a_page_without_any_curve_is_whole(browser: Page, tmp_path: Path, plant: Any) -> None:
    plant(tmp_path / "study", ended=False, metrics=[])
    browser.driver.get(write_report([tmp_path / "study"], tmp_path / "report.html").as_uri())
    assert "No run has ended yet." in browser.ask("return document.body.innerText")
    assert browser.errors() == []


def test_the_csv_of_the_page_is_what_a_click_saves(page: Page, tmp_path: Path) -> None:
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    page.click("a.download")
    page.until(lambda: (tmp_path / "eureka.csv").is_file())
    assert (tmp_path / "eureka.csv").read_text(encoding="utf-8").startswith("fix,lr,seeds,eureka_ratio")
    page.click("a.download", 1)
    page.until(lambda: (tmp_path / "eureka-comparisons.csv").is_file())
    assert (tmp_path / "eureka-comparisons.csv").read_text(encoding="utf-8").startswith("fix,baseline,best_lr")
