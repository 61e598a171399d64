"""Run folders as a run writes them: small real ones, and ones whose leap is planted and whose result is found by the rule."""

from __future__ import annotations

import itertools
import json
import math
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eureka.runs import RunFolder
from eureka.training.leaps import Point, eureka_moment, find_moments

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


@dataclass(frozen=True)
class Level:
    knows: str
    loss: float
    accuracy: float


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
    environment: dict[str, Any] = ENVIRONMENT,
    metrics: list[dict[str, Any]] | None = None,
    status: str = "finished",
    name: str | None = None,
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
    folder.write("config.json", config)
    folder.write("environment.json", environment)
    folder.write("task.json", {"levels": [asdict(level) for level in levels]})
    last = training["steps"] if reached is None else reached
    lines = simulate(range(log_every, last + 1, log_every), leap, training["seed"]) if metrics is None else metrics
    folder.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if ended:
        folder.write("result.json", result(lines, levels, status, last))
    return folder


def simulate(steps: range, leap: float | None, seed: int) -> list[dict[str, Any]]:
    """Loss falls to just above the plateau and stays; at `leap` it goes to the floor within some fifty steps."""
    noise = random.Random(f"{seed} {leap}")
    lines = []
    for step in steps:
        solved = 0.0 if leap is None else 1 / (1 + math.exp((leap - step) / 15))
        early = math.exp(-step / (70 + 10 * noise.random()))
        loss = (0.65 + 1.7 * early) * (1 - 0.95 * solved) + noise.gauss(0, 0.01)
        accuracy = (0.55 - 0.45 * early) * (1 - solved) + 0.985 * solved + noise.gauss(0, 0.008)
        values = {"train_loss": loss * 0.97, "train_accuracy": accuracy, "validation_loss": loss, "validation_accuracy": accuracy}
        lines.append({"step": step, **values, "lr": 3e-4})
    return lines


def result(lines: list[dict[str, Any]], levels: list[Level], status: str, steps: int) -> dict[str, Any]:
    points = [Point(line["step"], line["validation_loss"], line["validation_accuracy"]) for line in lines]
    moment = eureka_moment(points, levels)
    last = lines[-1] if lines else {}
    return {
        "status": status,
        "steps": steps,
        "seconds": 61.4,
        "samples": steps * 256,
        "eureka_step": moment.step if moment else None,
        "onset_step": moment.onset if moment else None,
        "moments": [asdict(moment) for moment in find_moments(points, levels)],
        "final_loss": last.get("validation_loss"),
        "final_accuracy": last.get("validation_accuracy"),
    }


def plant_attention(folder: RunFolder, leap: float | None = None, *, every: int = 50, layers: int = 2, tokens: int = 5) -> None:
    """Lines and maps of a run whose attention sharpens at `leap`, and what was read off its layers."""
    last = 1200
    lines, sharpness = [], {step: 0.0 if leap is None else 1 / (1 + math.exp((leap - step) / 30)) for step in range(0, last + 1)}
    for step in range(0, last, every):
        sites = [{"index": i, "name": f"blocks.{i}.attention", "values": _values(sharpness[step], i)} for i in range(layers)]
        lines.append({"step": step, "sites": sites})
    folder.attention_file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    folder.map_file(0).parent.mkdir()
    for step in range(0, last + 1, 200):
        logits = 6 * sharpness[step] * np.eye(tokens)[None, None].repeat(layers, 0).repeat(2, 1)
        weights = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        np.save(folder.map_file(step), weights.astype(np.float16))
    found = {"before": 0.5, "after": 0.95}
    stages = {when: {"step": 400 if when == "before" else last, "found": _read(high, layers)} for when, high in found.items()}
    folder.write("probes.json", {"record": lines[-1], "linear": stages})


def _values(sharpness: float, layer: int) -> dict[str, list[float | None]]:
    ratio = 10 ** (-2 + layer + sharpness)
    return {"entropy": [0.99 - 0.5 * sharpness - 0.1 * layer, 0.97 - 0.5 * sharpness], "grad_ratio": [ratio, None]}


def _read(accuracy: float, layers: int) -> list[dict[str, Any]]:
    place = {"site": "blocks", "head": None, "representation": "block", "chance": 0.5, "bits": 0.1, "uniform_bits": 1.0}
    answers = itertools.product(["indicator_1", "label"], range(layers))
    return [{**place, "layer": layer, "answer": answer, "accuracy": accuracy - 0.01 * layer} for answer, layer in answers]


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
    from eureka.study import Study

    folder = tmp_path_factory.mktemp("real")
    small = {"model.dim": 16, "model.depth": 1, "training.steps": 30, "training.warmup": 5, "training.log_every": 5}
    base = recipe("tiles").but({**small, "training.batch_size": 32, "training.validation_samples": 64})
    grid = {"attention.name": ["softmax", "norm_softmax"], "training.seed": [0, 1]}
    real = Study.over(base, grid, folder)
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

    def open(self, path: Path) -> None:
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(path.as_uri())
        self.until(lambda: self.drawn() > 0)

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
