"""The page that `eureka detect --html` writes: the words of the terminal, escaped, and the curve with its marks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.curves.advice import advise
from eureka.curves.examination import Examination
from eureka.curves.finding import Finding
from eureka.curves.levels import Given, Level
from eureka.errors import RequestError
from eureka.report.log_page import log_page, write_log_page

HOSTILE = '</script><img src=x onerror="document.title=1"><b>%{x}</b>'
GIVEN = Given(levels=(Level(name=HOSTILE, value=1.2),), floor=0.5)


@pytest.fixture
def findings(tmp_path: Path) -> list[Finding]:
    """Train and validation of one run; validation falls later, and its name is an attack."""
    t, noise = np.arange(1000), 0.02 * np.random.default_rng(0).standard_normal((2, 1000))
    train, late = (2.0 - 1.5 / (1.0 + np.exp(-(t - at) / 8.0)) + one for at, one in zip((300, 700), noise, strict=True))
    rows = "".join(f"{10 * i},{a:.5f},{b:.5f}\n" for i, a, b in zip(t, train, late, strict=True))
    file = tmp_path / "a<i>.csv"
    file.write_text(f'step,train_loss,"val_loss"\n{rows}')
    return Examination(given=GIVEN).of(file)


def test_the_page_says_what_the_terminal_says_and_requests_nothing(findings: list[Finding], tmp_path: Path, parse: Any) -> None:
    write_log_page([findings], tmp_path / "page.html")
    page = parse((tmp_path / "page.html").read_text(encoding="utf-8"))
    for finding in findings:
        assert finding.title in page.text
        assert finding.verdict() in page.text
        assert all(advice.sentence() in page.text for advice in advise(finding))
    assert "memorised first" in page.text
    assert not [tag for tag, given in page.elements if tag in ("img", "link", "i", "b") or "src" in given or "href" in given]


def test_what_is_drawn_is_what_was_found(findings: list[Finding]) -> None:
    first = log_page([findings]).data.curves[0]
    [moment] = findings[0].moments
    assert [mark.steepest for mark in first.marks if mark.kind] == [moment.steepest]
    assert [(mark.start, mark.end) for mark in first.marks if not mark.kind] == [
        (one.start, one.end) for one in findings[0].plateaus
    ]
    assert {(line.name, line.value) for line in first.lines} == {(HOSTILE, 1.2), ("floor", 0.5)}
    assert min(first.y) == pytest.approx(findings[0].curve.values.min(), rel=1e-5)
    json.dumps(first.y, allow_nan=False)


def test_a_browser_draws_every_curve_with_its_marks_and_shows_hostile_names_as_they_are(
    browser: Any, findings: list[Finding], tmp_path: Path
) -> None:
    write_log_page([findings], tmp_path / "page.html")
    browser.open(tmp_path / "page.html", ".curve")
    browser.until(lambda: browser.drawn(".curve") == 2)
    texts = browser.ask("return [...document.querySelectorAll('.curve .annotation-text')].map((a) => a.textContent)")
    assert sum(text.startswith("eureka 0.") for text in texts) == 2
    assert any(text.startswith("</script><img") for text in texts)
    assert browser.ask("return document.title") == "eureka detect: a<i>.csv"
    assert browser.errors() == []
    assert set(browser.requests()) == {(tmp_path / "page.html").as_uri()}


def test_a_page_that_cannot_be_written_is_refused(findings: list[Finding], tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no folder"):
        write_log_page([findings], tmp_path / "no" / "page.html")
    with pytest.raises(RequestError, match="it is a folder"):
        write_log_page([findings], tmp_path)
