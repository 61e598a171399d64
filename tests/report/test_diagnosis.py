"""The page that `eureka diagnose --html` writes: findings, the loss so far and the checks, all escaped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.curves.readers.curve import Curve
from eureka.doctor.finding import CheckRecord, Diagnosis, Finding
from eureka.errors import RequestError
from eureka.report.diagnosis import write_diagnosis

HOSTILE = '</script><img src=x onerror="document.title=1"><b>%{x}</b>'


@pytest.fixture
def diagnosis() -> Diagnosis:
    """Two causes, one with code, of which every text is an attack; one check was not made."""
    first = Finding(
        cause="positions_missing",
        sure=0.9,
        explains=0.8,
        evidence=(f"Positions are 0.11 of the content's size {HOSTILE}.", "A second sentence."),
        advice=f"rescale them {HOSTILE}",
        code=f"eureka.clear_start(model, inputs) # {HOSTILE}",
    )
    second = Finding(cause="clip_too_tight", sure=0.6, explains=0.3, evidence=("The norm is 40.",), advice="clip at 40.")
    checks = (
        CheckRecord(name="movement", seconds=1.0),
        CheckRecord(name="labels", seconds=0.0, skipped=f"ValueError: {HOSTILE}"),
    )
    return Diagnosis(findings=(first, second), checks=checks, notes=(f"{HOSTILE} at step 3.",), step_seconds=0.05)


def curve() -> Curve:
    values = 2.0 + 0.01 * np.random.default_rng(0).standard_normal(300)
    return Curve(
        file="", metric=HOSTILE, step_name="step", steps=np.arange(300.0), values=values, lr=None, points=300, metrics=()
    )  # fmt: skip


def test_the_page_says_all_that_was_found_and_requests_nothing(diagnosis: Diagnosis, tmp_path: Path, parse: Any) -> None:
    write_diagnosis(diagnosis, tmp_path / "page.html", title=HOSTILE)
    source = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = parse(source)
    for finding in diagnosis.findings:
        assert all(text in page.text for text in (finding.cause, *finding.evidence, finding.advice, finding.code))
    assert page.text.index("positions_missing, 90 % sure, and 1 other cause") < page.text.index("clip_too_tight")
    assert all(text in page.text for text in (*diagnosis.notes, "movement 1.00 s 20 made", f"ValueError: {HOSTILE}"))
    assert not [tag for tag, given in page.elements if tag in ("img", "link", "b", "script") or "src" in given or "href" in given]
    assert len(source) < 30_000, "without a curve there is nothing to draw"


def test_a_healthy_run_is_called_so(tmp_path: Path, parse: Any) -> None:
    fine = Finding(cause="healthy", sure=0.9, explains=1.0, evidence=("learning: loss 2.",), advice="go on.")
    write_diagnosis(Diagnosis(findings=(fine,), checks=(), notes=()), tmp_path / "page.html", title="run")
    text = parse((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "No fault was found. The run is learning." in text
    assert "would explain" not in text


def test_a_browser_draws_the_loss_and_shows_hostile_words_as_they_are(browser: Any, diagnosis: Diagnosis, tmp_path: Path) -> None:
    write_diagnosis(diagnosis, tmp_path / "page.html", title=HOSTILE, curve=curve())
    browser.open(tmp_path / "page.html", ".curve")
    browser.until(lambda: browser.drawn(".curve") == 1)
    assert browser.ask("return document.title") == f"eureka diagnose: {HOSTILE}"
    assert browser.ask("return document.querySelectorAll('img').length") == 0
    assert "no Eureka-moment" in browser.ask("return document.body.innerText")
    assert browser.errors() == []
    assert set(browser.requests()) == {(tmp_path / "page.html").as_uri()}


def test_a_page_that_cannot_be_written_is_refused(diagnosis: Diagnosis, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="there is no folder"):
        write_diagnosis(diagnosis, tmp_path / "no" / "page.html", title="run")
