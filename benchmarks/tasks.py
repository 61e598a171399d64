"""How fast tasks give samples: alone, beside one-at-a-time assembly, and as a share of a training step of their small recipe.

``python -m benchmarks.tasks [--recipes A,B,…] [--json]``
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from torch import Generator, Tensor

from benchmarks.command import start
from eureka.bench.timing import interleaved
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, listed, print_json
from eureka.cli.table import print_table
from eureka.config import RunConfig
from eureka.data.images import load_images
from eureka.errors import RequestError
from eureka.experiment import build
from eureka.recipes import RECIPES, recipe
from eureka.tasks.pictures import COLOUR_NOISE, PictureTask, paint, shelf
from eureka.tasks.registry import TASKS
from eureka.tasks.task import Task
from eureka.training.optimiser import make_optimiser

BATCH = 512  # the paper's
TILE = 28
CORNERS = ((0, 0), (0, TILE), (TILE, 0), (TILE, TILE))
PIXELS = 4 * TILE**2
PASSES = sum(
    (
        2 * PIXELS,  # four tiles are fetched, a byte a pixel
        2 * PIXELS,  # their lines are put in place
        PIXELS + 4 * PIXELS,  # bytes become floats
        4 * PIXELS + 2 * 12 * PIXELS,  # and are painted: memory is read before it is written, as in a copy
    )
)
"""Bytes that a batch reads and writes for each of its samples of the main task."""
RED, BLUE, WHITE = np.array([1.0, 0, 0]), np.array([0, 0, 1.0]), np.ones(3)


@dataclass(frozen=True)
class SamplingSpeed:
    """How fast a task gives samples on one thread."""

    task: str
    samples_per_s: int
    vs_per_sample: float | None
    """times as fast as one-at-a-time assembly, where that is written out"""
    passes_at_copy_rate: float | None
    """the same if every byte that a batch reads and writes moved at the rate of a copy, and nothing else took time"""
    drawn_fetched_painted: float | None
    """the same if a batch only drew its scenes, fetched their pictures from memory and multiplied them with their colours"""
    share_of_step: float
    """sampling, as a share of a training step"""


@dataclass(frozen=True)
class Skipped:
    """A task that could not be measured."""

    task: str
    reason: str


def plan() -> list[str]:
    """The recipes that are measured: for each task the first of the small ones, and where there is none, any."""
    chosen: dict[str, str] = {}
    for name, found in RECIPES.items():
        if name.startswith("small/") or "/" not in name:
            chosen.setdefault(found.task, name)
    return [chosen[task] for task in TASKS.names() if task in chosen]


def run(recipes: Sequence[str], progress: Callable[[str], None] = lambda line: None) -> tuple[list[SamplingSpeed], list[Skipped]]:
    """The speed of each recipe's task; and the tasks whose data is not on this machine."""
    torch.set_num_threads(1)
    speeds, skipped = [], []
    for name, config in [(name, recipe(name)) for name in recipes]:  # a wrong name is an error before anything is measured
        progress(name)
        try:
            speeds.append(sampling_speed(config))
        except RequestError as error:
            skipped.append(Skipped(RECIPES[name].task, str(error)))
    return speeds, skipped


def sampling_speed(config: RunConfig) -> SamplingSpeed:
    """Samples a second of the task with its default settings; the share that sampling has in a step of the recipe."""
    name = config.task.name
    task: Task = TASKS.build(name)
    generator = Generator().manual_seed(0)
    jobs: dict[str, Callable[[], object]] = {"batch": lambda: task.sample(BATCH, generator), **training_jobs(config)}
    if isinstance(task, PictureTask) and name == "main":
        baseline = PerSample()
        jobs["one at a time"] = lambda: baseline.sample(BATCH)
        jobs |= least_jobs(task)
    pictures = torch.empty(BATCH, 3, 2 * TILE, 2 * TILE)
    copy = torch.empty_like(pictures)
    jobs["copy"] = lambda: copy.copy_(pictures)
    seconds = interleaved(jobs, rounds=5, budget=10.0)
    alone = seconds.get("one at a time")
    rate = 2 * pictures.nbytes / seconds["copy"]

    def times(*durations: float) -> float | None:
        return None if alone is None else round(alone / sum(durations), 1)

    return SamplingSpeed(
        task=name,
        samples_per_s=round(BATCH / seconds["batch"]),
        vs_per_sample=times(seconds["batch"]),
        passes_at_copy_rate=times(PASSES * BATCH / rate),
        drawn_fetched_painted=times(*(seconds.get(part, 0.0) for part in ("draw", "fetch", "paint"))),
        share_of_step=round(seconds["sampling"] / seconds["step"], 4),
    )


def least_jobs(task: PictureTask) -> dict[str, Callable[[], object]]:
    """What no way of making a batch of the main task can leave out: drawing what is shown, reading its pictures, which lie
    anywhere in memory, and writing their products with the colours."""
    album, generator = shelf("train", TILE, photos=False), Generator().manual_seed(0)
    floats, colours = torch.rand(BATCH, 1, 2, TILE, 2 * TILE), torch.rand(BATCH, 3, 2, 1, 2 * TILE)

    def fetch() -> Tensor:
        return album.pictures.index_select(0, torch.randint(len(album.pictures), (4 * BATCH,), generator=generator))

    def draw() -> Tensor:
        return album.choose(task.compose(BATCH, generator).shown, generator)

    return {"draw": draw, "fetch": fetch, "paint": lambda: floats * colours}


def training_jobs(config: RunConfig) -> dict[str, Callable[[], object]]:
    """One training step of a recipe, and the sampling that is part of it."""
    task, model = build(config)
    optimiser, generator, training = make_optimiser(model, config.training), Generator().manual_seed(0), config.training

    def step() -> None:
        batch = task.sample(training.batch_size, generator, "train")
        loss = task.loss(model(batch.inputs), batch, training.label_smoothing)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return {"step": step, "sampling": lambda: task.sample(training.batch_size, generator, "train")}


class WholeTiles:
    """The batch of the main task as it was put together before lines went to their places one by one: a permuted copy."""

    def __init__(self, task: PictureTask) -> None:
        self.task, self.album = task, shelf("train", TILE, photos=False)

    def sample(self, n: int, generator: Generator) -> Tensor:
        scene = self.task.compose(n, generator)
        noise = COLOUR_NOISE * torch.randn(scene.colours.shape, generator=generator)
        chosen = self.album.choose(scene.shown, generator)
        tiles = self.album.pictures.index_select(0, chosen.flatten()).view(n, 2, 2, 1, TILE, TILE).permute(0, 3, 1, 4, 2, 5)
        floats = tiles.to(torch.float, memory_format=torch.contiguous_format).view(n, 1, 2, TILE, 2 * TILE)
        return paint(floats, (scene.colours + noise).clamp(0, 1))


def picture_sides() -> tuple[float, float]:
    """Seconds of a batch of the main task: the old way and the new one, which give the same pictures."""
    torch.set_num_threads(1)
    task = TASKS.build("main")
    assert isinstance(task, PictureTask)
    old, generator = WholeTiles(task), Generator().manual_seed(0)
    jobs = {"before": lambda: old.sample(BATCH, generator), "after": lambda: task.sample(BATCH, generator)}
    seconds = interleaved(jobs, rounds=20, budget=10.0)
    return seconds["before"], seconds["after"]


class PerSample:
    """The main task's picture put together one sample at a time, as a data set class usually does it: the baseline."""

    def __init__(self, seed: int = 0) -> None:
        digits, fashion = load_images("mnist", "train"), load_images("fashion_mnist", "train")
        self.digits = [digits.pixels[digits.labels == digit] for digit in range(10)]
        self.fashion = [fashion.pixels[fashion.labels == label] for label in range(10)]
        self.rng = np.random.default_rng(seed)

    def sample(self, n: int) -> tuple[Tensor, Tensor]:
        pictures, labels = zip(*(self.one() for _ in range(n)), strict=True)
        return torch.stack([torch.from_numpy(picture) for picture in pictures]), torch.tensor(labels)

    def one(self) -> tuple[NDArray[np.float32], int]:
        """One picture of 56×56 in colour, and its label."""
        rng = self.rng
        first, second = (int(digit) for digit in rng.integers(1, 3, 2))
        right, left = (int(label) for label in rng.integers(0, 10, 2))
        picture = np.zeros((3, 2 * TILE, 2 * TILE), dtype=np.float32)
        tiles = (self.digits[first], self.fashion[right], self.fashion[left], self.digits[second])
        colours = (self._tint(), WHITE, WHITE, self._tint())
        for choices, colour, (y, x) in zip(tiles, colours, CORNERS, strict=True):
            shade = choices[rng.integers(len(choices))] / np.float32(255)
            noisy = np.clip(colour + 0.05 * rng.standard_normal(3), 0, 1).astype(np.float32)
            picture[:, y : y + TILE, x : x + TILE] = shade * noisy[:, None, None]
        return picture, right if first == second else left

    def _tint(self) -> NDArray[np.float64]:
        return RED if self.rng.random() < 0.5 else BLUE


def main(
    json: JsonOption = False,
    recipes: Annotated[str | None, typer.Option("--recipes", metavar="A,B,…", help="Only the tasks of these recipes.")] = None,
) -> None:
    """How fast each task gives samples: alone, beside one-at-a-time assembly, and as a share of a training step."""
    speeds, skipped = run(listed("--recipes", recipes, str) if recipes else plan(), progress=say)
    if json:
        print_json({"rows": [asdict(speed) for speed in speeds], "skipped": [asdict(task) for task in skipped]})
        return
    print_table(
        ["task", "samples a second", "× one at a time", "share of a step"],
        [(s.task, f"{s.samples_per_s:,}", _times(s.vs_per_sample), f"{s.share_of_step:.1%}") for s in speeds],
    )
    for speed in speeds:
        if speed.vs_per_sample is not None:
            sys.stdout.write(
                f"{speed.task}: {_times(speed.passes_at_copy_rate)} × one at a time if all passes over memory went at the rate "
                f"of a copy, {_times(speed.drawn_fetched_painted)} × if its pictures were only drawn, fetched and painted.\n"
            )
    for task in skipped:
        sys.stdout.write(f"{task.task} was left out: {task.reason}\n")


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:,.1f}"


if __name__ == "__main__":
    start(main)
