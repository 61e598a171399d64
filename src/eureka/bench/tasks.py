"""How fast tasks give samples: alone, beside one-at-a-time assembly, and as a share of a training step of their small recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator

from eureka.bench.assembly import PerSample
from eureka.bench.timing import interleaved
from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.experiment import build
from eureka.recipes import RECIPES
from eureka.tasks import TASKS, Task
from eureka.training.optimiser import make_optimiser

BATCH = 512  # the paper's
Row = dict[str, Any]


def plan() -> list[str]:
    """The recipes that are measured: for each task the first of the small ones, and where there is none, any."""
    chosen: dict[str, str] = {}
    for name, recipe in RECIPES.items():
        if name.startswith("small/") or "/" not in name:
            chosen.setdefault(recipe.task, name)
    return [chosen[task] for task in TASKS.names() if task in chosen]


def run(recipes: Sequence[str], progress: Callable[[str], None] = lambda line: None) -> tuple[list[Row], list[Row]]:
    """A row for each recipe's task; and those that could not be measured, with the reason, when their data is not here."""
    torch.set_num_threads(1)
    rows, skipped = [], []
    for name in recipes:
        progress(name)
        try:
            rows.append(measure(RECIPES[name].make()))
        except RequestError as error:
            skipped.append({"task": RECIPES[name].task, "reason": str(error)})
    return rows, skipped


def measure(config: RunConfig) -> Row:
    """Samples a second of the task as it is by default; the share that sampling has in a step of the recipe."""
    name = config.task["name"]
    task: Task = TASKS.build(name)
    generator = Generator().manual_seed(0)
    jobs: dict[str, Callable[[], object]] = {"batch": lambda: task.sample(BATCH, generator), **training_jobs(config)}
    if name == "main":
        baseline = PerSample()
        jobs["one at a time"] = lambda: baseline.sample(BATCH)
    seconds = interleaved(jobs, rounds=5, budget=10.0)
    return {
        "task": name,
        "samples_per_s": round(BATCH / seconds["batch"]),
        "vs_per_sample": round(seconds["one at a time"] / seconds["batch"], 1) if "one at a time" in jobs else None,
        "share_of_step": round(seconds["sampling"] / seconds["step"], 4),
    }


def training_jobs(config: RunConfig) -> dict[str, Callable[[], object]]:
    """One training step of a recipe, and the sampling that is part of it."""
    task, model = build(config)
    optimiser, generator, training = make_optimiser(model, config.training), Generator().manual_seed(0), config.training

    def step() -> None:
        batch = task.sample(training.batch_size, generator, "train")
        loss = task.loss(model(batch.inputs), batch, training.label_smoothing)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return {"step": step, "sampling": lambda: task.sample(training.batch_size, generator, "train")}
