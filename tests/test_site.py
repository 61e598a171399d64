"""The site builds without a warning, asks for nothing when it is viewed, and tells of every cause, verb, fix and task."""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import typer
import yaml

import eureka
from benchmarks.pages.api import GROUPS
from benchmarks.pages.assemble import assemble, made_pages
from benchmarks.pages.evidence import cells
from benchmarks.pages.symptom_page import checks
from benchmarks.pages.symptoms import SYMPTOMS
from eureka.attention.registry import FIXES
from eureka.cli.main import app
from eureka.doctor.finding import CAUSES
from eureka.tasks.registry import TASKS
from tests.report.conftest import browser  # noqa: F401

ROOT = Path(__file__).parents[1]
SHOWN = ["index.html", "start.html", "symptoms.html", "howto/slurm.html", "fixes/norm_softmax.html", "tasks/tiles.html"]
SHOWN += ["reference/commands.html", "reference/api.html", "regimes.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds, elsewhere."""
    pytest.importorskip("material", reason="needs mkdocs-material: pip install 'eureka-moments[docs]'")
    pytest.importorskip("mkdocstrings", reason="needs mkdocstrings: pip install 'eureka-moments[docs]'")
    folder = tmp_path_factory.mktemp("site")
    assemble(folder / "docs")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace("build/docs", str(folder / "docs"))
    config = config.replace("build/site", str(folder / "site")).replace("paths: [src]", f"paths: [{ROOT / 'src'}]")
    (folder / "mkdocs.yml").write_text(config, encoding="utf-8")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--config-file", str(folder / "mkdocs.yml")],
        env=os.environ | {"PYTHONPATH": path, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder / "site"


def test_no_page_of_the_site_fetches_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 60
    fetched = re.compile(
        r"<(?:script|img|iframe|source)[^>]+src=\"https?:|<link[^>]+rel=\"(?:stylesheet|preconnect|icon)\"[^>]+href=\"https?:"
    )
    assert [page.name for page in pages if fetched.search(page.read_text(encoding="utf-8"))] == []


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the site is served, on this machine alone."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_in_a_browser_no_page_has_an_error_or_scrolls_sideways(browser: Any, address: str) -> None:  # noqa: F811
    browser.errors(), browser.requests()
    for scheme, name, pages in (("light", "default", SHOWN), ("dark", "slate", SHOWN[:2])):
        browser.prefer(scheme)
        for width in (1400, 390):
            browser.width(width)
            for page in pages:
                browser.driver.get(f"{address}/{page}")
                wider = browser.ask("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wider <= 0, f"{page} at {width} pixels"
            browser.until(lambda: browser.ask("return document.body.getAttribute('data-md-color-scheme')") == name)  # noqa: B023
    assert browser.errors() == []
    assert {url for url in browser.requests() if url.startswith("http") and not url.startswith(address)} == set()


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return made_pages()


def test_every_cause_of_the_doctor_has_its_symptom_and_the_check_that_tells_it(made: dict[str, str]) -> None:
    assert tuple(SYMPTOMS) == CAUSES
    assert set(checks()) == set(CAUSES) - {"healthy"}
    for cause in CAUSES:
        assert f"## {cause}\n" in made["symptoms.md"]
        assert f"[{cause}](#{cause})" in made["symptoms.md"]


def test_every_verb_and_option_is_on_the_page_of_commands(made: dict[str, str]) -> None:
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        section = made["reference/commands.md"].split(f"## eureka {name}\n")[1]
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert f"`{', '.join([*parameter.opts, *parameter.secondary_opts])}" in section, (name, parameter.name)


def test_every_public_name_is_in_the_reference(made: dict[str, str]) -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(eureka.__all__)
    for name in grouped:
        assert f"heading: eureka.{name}\n" in made["reference/api.md"]


def test_a_card_counts_the_runs_of_the_committed_studies(made: dict[str, str]) -> None:
    found = {(cell.study, cell.fix, cell.lr): cell for cell in cells() if not cell.settings}
    assert str(found["tiles", "norm_softmax", 3e-4]) == "6 of 6, step 662"
    assert (
        "| `norm_softmax` | – | 1 of 6 | 6 of 6, step 662 | 4 of 6, step 812 | 0 of 6 | 2 of 6 |" in made["fixes/norm_softmax.md"]
    )
    assert "No committed study has it yet" in made["fixes/qr.md"]


def test_every_fix_and_task_has_a_card_in_the_menu() -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    menu = str(config["nav"])
    for place in [*(f"fixes/{name}.md" for name in FIXES.names()), *(f"tasks/{name}.md" for name in TASKS.names())]:
        assert f"'{place}'" in menu


@pytest.mark.parametrize("module", ["made", "links", "notebooks", "doctests"])
def test_the_examples_of_the_page_makers_hold(module: str) -> None:
    if module == "doctests":
        pytest.importorskip("griffe")
    failed, tried = doctest.testmod(importlib.import_module(f"benchmarks.pages.{module}"))
    assert tried > 0
    assert failed == 0
