"""Run folders as a run writes them: small real ones, and ones whose leap is planted and whose result is found by the rule."""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.report.groups import Groups
from eureka.report.report_run import read_rest
from eureka.runs import (
    Level,
    LinearProbe,
    Metrics,
    Origin,
    Outcome,
    PositionShare,
    ProbeRecord,
    Probes,
    Readings,
    RecordLog,
    RunFolder,
    SiteRecord,
    Status,
    StoredConfig,
    TaskRecord,
    find_runs,
)
from eureka.study.summary import summarise
from eureka.training.leaps import eureka_leap, find_leaps

CONFIG: dict[str, dict[str, Any]] = {
    "task": {"name": "tiles", "decisions": 2},
    "model": {"name": "encoder", "dim": 64},
    "attention": {"name": "softmax"},
    "training": {"steps": 1200, "lr": 3e-4, "seed": 0, "early_stop": False},
}
ENVIRONMENT = {"python": "3.11.2", "platform": "Linux", "eureka": "0.1.0", "torch": "2.13.0"}


CHROMIUM = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run"
    " --disable-background-networking --disable-component-update --disable-sync"
)


LEVELS = [Level("the last step", 0.6238, 0.55), Level("all steps", 0.0, 1.0)]


def plant_run(
    study: Path,
    changes: dict[str, Any] | None = None,
    *,
    leap: float | None = None,
    ended: bool = True,
    reached: int | None = None,
    log_every: int = 25,
    levels: list[Level] = LEVELS,
    environment: dict[str, str] = ENVIRONMENT,
    metrics: list[Metrics] | None = None,
    status: Status = "finished",
    name: str | None = None,
    origin: Origin | None = None,
) -> RunFolder:
    """Write one run: its config is `CONFIG` with the changes, its accuracy leaps at step `leap`."""
    config = {part: dict(values) for part, values in CONFIG.items()}
    for key, value in (changes or {}).items():
        part, _, setting = key.partition(".")
        config[part][setting] = value
    training = config["training"]
    name = name or f"{config['attention']['name']}-lr{training['lr']:g}-seed{training['seed']}-{len(list(study.glob('*')))}"
    folder = RunFolder(study / name)
    folder.create()
    folder.write_config(StoredConfig(config))
    folder.write_environment(environment)
    folder.write_task(TaskRecord(levels))
    if origin is not None:
        folder.write_origin(origin)
    last = training["steps"] if reached is None else reached
    lines = simulate(range(log_every, last + 1, log_every), leap, training["seed"]) if metrics is None else metrics
    log = RecordLog(folder.metrics_file)
    log.open(0)
    for line in lines:
        log.append(line)
    if ended:
        folder.write_result(outcome(lines, levels, status, last))
    return folder


def simulate(steps: range, leap: float | None, seed: int) -> list[Metrics]:
    """Loss falls to just above the plateau and stays; at `leap` it goes to the floor within some fifty steps."""
    noise = random.Random(f"{seed} {leap}")
    lines = []
    for step in steps:
        solved = 0.0 if leap is None else 1 / (1 + math.exp((leap - step) / 15))
        early = math.exp(-step / (70 + 10 * noise.random()))
        loss = (0.65 + 1.7 * early) * (1 - 0.95 * solved) + noise.gauss(0, 0.01)
        accuracy = (0.55 - 0.45 * early) * (1 - solved) + 0.985 * solved + noise.gauss(0, 0.008)
        lines.append(Metrics(step, loss * 0.97, accuracy, loss, accuracy, 3e-4))
    return lines


def outcome(lines: list[Metrics], levels: list[Level], status: Status, steps: int) -> Outcome:
    leap = eureka_leap(lines, levels)
    return Outcome(
        status=status,
        steps=steps,
        seconds=61.4,
        samples=steps * 256,
        eureka_step=leap.step if leap else None,
        onset_step=leap.onset if leap else None,
        moments=tuple(find_leaps(lines, levels)),
        final_loss=lines[-1].validation_loss if lines else None,
        final_accuracy=lines[-1].validation_accuracy if lines else None,
    )


def plant_attention(
    folder: RunFolder,
    leap: float | None = None,
    *,
    every: int = 50,
    layers: int = 2,
    tokens: int = 5,
    shares: bool = True,
) -> None:
    """Lines and maps of a run whose attention sharpens at `leap`, and what was read off its layers."""
    last = 1200
    sharpness = {step: 0.0 if leap is None else 1 / (1 + math.exp((leap - step) / 30)) for step in range(0, last + 1)}
    log = RecordLog(folder.attention_file)
    log.open(0)
    for step in range(0, last, every):
        sites = [SiteRecord(i, f"blocks.{i}.attention", _values(sharpness[step], i)) for i in range(layers)]
        share = PositionShare(site="blocks.0.attention", logits=[0.1 + 0.6 * sharpness[step], 0.3 + 0.6 * sharpness[step]])
        record = ProbeRecord(step, sites, share if shares else None)
        log.append(record)
    folder.map_file(0).parent.mkdir()
    for step in range(0, last + 1, 200):
        logits = 6 * sharpness[step] * np.eye(tokens)[None, None].repeat(layers, 0).repeat(2, 1)
        weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        np.save(folder.map_file(step), weights.astype(np.float16))
    readings = {"before": Readings(400, _read(0.5, layers)), "after": Readings(last, _read(0.95, layers))}
    folder.write_probes(Probes(record, readings))


def _values(sharpness: float, layer: int) -> dict[str, list[float]]:
    ratio = 10 ** (-2 + layer + sharpness)
    return {"entropy": [0.99 - 0.5 * sharpness - 0.1 * layer, 0.97 - 0.5 * sharpness], "grad_ratio": [ratio, math.nan]}


def linear_probe(**changes: Any) -> LinearProbe:
    """A linear probe of a whole block, but for the changes."""
    block = LinearProbe(
        site="blocks",
        layer=0,
        head=None,
        representation="block",
        answer="label",
        accuracy=0.9,
        chance=0.5,
        bits=0.1,
        uniform_bits=1.0,
    )
    return replace(block, **changes)


def _read(accuracy: float, layers: int) -> list[LinearProbe]:
    return [
        linear_probe(answer=answer, layer=layer, accuracy=accuracy - 0.01 * layer)
        for answer in ("indicator_1", "label")
        for layer in range(layers)
    ]


@pytest.fixture(name="linear_probe", scope="session")
def fixture_linear_probe() -> Any:
    """Makes a linear probe: ``linear_probe(layer=1, accuracy=0.7)``."""
    return linear_probe


@pytest.fixture(scope="session")
def groups_of() -> Callable[[Path], Groups]:
    """Reads the runs in a folder and sorts them as the page does."""

    def groups_of(folder: Path) -> Groups:
        summary = summarise(find_runs(folder))
        return Groups([read_rest(run) for run in summary.runs], summary.grouping)

    return groups_of


@pytest.fixture(name="plant_attention", scope="session")
def fixture_plant_attention() -> Any:
    """Adds attention to a planted run: ``plant_attention(folder, leap=500)``."""
    return plant_attention


@pytest.fixture(name="plant", scope="session")
def fixture_plant() -> Any:
    """Writes one run: ``plant(folder, {"training.seed": 1}, leap=500)``."""
    return plant_run


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """The demo's outcome: norm_softmax leaps, softmax does not."""
    folder = tmp_path / "study"
    for seed in range(3):
        plant_run(folder, {"training.seed": seed})
        plant_run(folder, {"training.seed": seed, "attention.name": "norm_softmax"}, leap=500 + 50 * seed)
    return folder


@pytest.fixture(scope="session")
def real_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two fixes, two seeds, really trained, though not for long."""
    from eureka.experiment import run
    from eureka.recipes import recipe
    from eureka.study.plan import Study

    folder = tmp_path_factory.mktemp("real")
    small = {"model.dim": 16, "model.depth": 1, "training.steps": 30, "training.warmup": 5, "training.log_every": 5}
    base = recipe("tiles").but({**small, "training.batch_size": 32, "training.validation_samples": 64})
    grid: dict[str, list[Any]] = {"attention.name": ["softmax", "norm_softmax"], "training.seed": [0, 1]}
    real = Study.over(base, grid, folder, "tiles")
    for config, place in zip(real.configs, real.prepare(), strict=True):
        run(config, place)
    return folder


class _Page(HTMLParser):
    """What a browser would see: elements with their attributes, the visible words, and the contents of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inside.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.inside and self.inside[-1] == tag:
            self.inside.pop()

    def handle_data(self, data: str) -> None:
        if not self.inside:
            self.words.append(data)
        elif self.inside[-1] == "script":
            self.scripts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


@pytest.fixture(scope="session")
def parse() -> Any:
    """Reads a page as a browser would: ``.elements``, ``.text``, ``.scripts``."""

    def parse(source: str) -> _Page:
        page = _Page()
        page.feed(source)
        page.close()
        return page

    return parse


class Page:
    """A page that is open in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, path: Path, inside: str = "#plot") -> None:
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        self.until(lambda: self.drawn(inside) > 0)

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def drawn(self, inside: str = "#plot") -> int:
        """How many curves there are on the screen, as paths that have a length."""
        script = "return [...document.querySelectorAll(arguments[0])].filter((path) => path.getTotalLength() > 0).length"
        return int(self.ask(script, f"{inside} .scatterlayer path.js-line"))

    def drawn_by_picture(self) -> list[int]:
        script = """return [...document.querySelectorAll('#plot .subplot')].map((picture) =>
            [...picture.querySelectorAll('path.js-line')].filter((path) => path.getTotalLength() > 0).length)"""
        return list(self.ask(script))

    def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the page did not come to what was waited for"
            time.sleep(0.05)

    def click(self, css: str, index: int = 0) -> None:
        from selenium.webdriver.common.action_chains import ActionChains

        element = self.driver.find_elements("css selector", css)[index]
        self.ask("arguments[0].scrollIntoView({block: 'center'})", element)
        ActionChains(self.driver).move_to_element(element).click().perform()

    def legend(self) -> list[str]:
        return list(self.ask("return [...document.querySelectorAll('#plot .legendtext')].map((text) => text.textContent)"))

    def prefer(self, scheme: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def width(self, pixels: int, *, mobile: bool = False) -> None:
        size = {"width": pixels, "height": 844, "deviceScaleFactor": 1, "mobile": mobile}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def errors(self) -> list[Any]:
        return [entry for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """One browser for all tests of a process."""
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs a browser and its driver: apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.get("about:blank")  # the browser's own first page may still be loading, and its requests are no test's
    try:
        yield Page(driver)
    finally:
        driver.quit()


@pytest.fixture
def page(browser: Page, report: Path) -> Page:
    """The report of the module that asks, in a window of a desk."""
    browser.prefer("light")
    browser.width(1280)
    browser.open(report)
    return browser
