"""Run folders as a run writes them: small real ones, and ones whose leap is planted and whose result is found by the rule."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from eureka.runs import RunFolder
from eureka.training.moment import Point, eureka_moment, find_moments

CONFIG: dict[str, dict[str, Any]] = {
    "task": {"name": "tiles", "decisions": 2},
    "model": {"name": "encoder", "dim": 64},
    "attention": {"name": "softmax"},
    "training": {"steps": 1200, "lr": 3e-4, "seed": 0, "early_stop": False},
}
ENVIRONMENT = {"python": "3.11.2", "platform": "Linux", "eureka": "0.1.0", "torch": "2.13.0"}


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
