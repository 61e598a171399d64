"""Does a race shorten the wait, counting its own steps? Stuck runs of several kinds, and healthy ones.

Each run is trained up to where it is stuck. From there it is raced, the winner is applied and trained until it leaps or the steps
are used up; and beside it the same run goes on waiting. A leap is that of `training/leaps.py`, looked for every 50 steps.

The steps of a race are those of all its forks, so the cost is what one device would do one fork after another. What is asked is
whether the leap comes at least twice as soon. So the waiting run is watched for twice as long as the raced one took, and no
longer: "≥ 2" says that it had not leapt by then. A run that is told to wait comes no sooner, so it is not trained on. A healthy
run is raced, and then waits; it is not trained with a remedy.

``python -m benchmarks.race [--kinds A,B,…] [--seeds N] [--out DIR] [--json]``

With ``--out`` each outcome is written to DIR/outcomes.csv as soon as it is known, and those that are there are not made again.
"""

from __future__ import annotations

import copy
import csv
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Generator, nn
from torch.optim import Optimizer

import eureka
from benchmarks.command import start
from eureka.cli.options import JsonOption, listed, print_json
from eureka.cli.table import print_table
from eureka.errors import UnknownNameError
from eureka.experiment import build
from eureka.formats import NONE
from eureka.racing.run import STEPS
from eureka.recipes import recipe
from eureka.runs import Metrics
from eureka.tasks.task import Batch, Task
from eureka.training.leaps import eureka_leap
from eureka.training.loop import VALIDATION_SEED
from eureka.training.optimiser import learning_rate, make_optimiser, set_learning_rate

EVERY = 50
"""Steps between two validations."""
WATCHED = 2.0
"""The waiting run is watched for so many times the steps that the raced run took."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A recipe with some keys changed, trained up to where it is raced."""

    recipe: str
    changes: dict[str, Any] = field(default_factory=dict)
    before: int
    """steps before the race"""
    most: int
    """steps after it, at most"""
    healthy: bool = False
    """whether waiting is right"""


TILES: dict[str, Any] = {
    "task.tokens": 1, "task.noise": 0.7, "training.validation_samples": 512,
}  # fmt: skip
"""Tiles of one token each: the same plateau in a fifth of the time."""
PICTURES: dict[str, Any] = {"training.batch_size": 128, "training.validation_samples": 256}
SENTENCES: dict[str, Any] = {"training.batch_size": 16, "training.validation_samples": 64}
CLEAR_NORM = {"model.start": "clear_positions", "attention.name": "norm_softmax"}
FAINT = {"model.position_init_scale": 0.1}
GPT = {"model.name": "hf_gpt2", "model.depth": 2, "model.heads": 1}

KINDS = {
    "tiles": Kind(recipe="tiles", changes={**TILES, "training.lr": 1e-4}, before=1200, most=4000),
    "main": Kind(recipe="small/main", changes={**PICTURES, "training.lr": 1e-4}, before=600, most=4000),
    "induction": Kind(recipe="small/induction", changes={**SENTENCES, **GPT}, before=400, most=4000),
    "rate": Kind(recipe="tiles", changes={**TILES, **CLEAR_NORM, "training.lr": 1e-5}, before=300, most=4000),
    "positions": Kind(recipe="tiles", changes={**TILES, **FAINT, "training.lr": 1e-4}, before=1200, most=4000),
    "healthy tiles": Kind(
        recipe="tiles", changes={**TILES, **CLEAR_NORM, "training.lr": 1e-3}, before=100, most=800, healthy=True
    ),
    "healthy digits": Kind(
        recipe="digits", changes={"attention.name": "norm_softmax", "training.lr": 1e-3}, before=40, most=400,
        healthy=True,
    ),
    "at its floor": Kind(
        recipe="tiles", changes={**TILES, **CLEAR_NORM, "training.lr": 1e-3}, before=800, most=800, healthy=True
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One run of one kind, raced and not. Steps are counted from the race; None is "not yet" at the end."""

    kind: str
    seed: int
    loss: float
    """before the race"""
    winner: str
    summary: str
    race_steps: int
    """of all forks"""
    most: int
    raced: int | None
    """the steps of the race and those after it, until the leap"""
    """None also for a healthy run, which is not trained with a remedy"""
    watched: int
    """so many steps the waiting run was given"""
    waited: int | None
    """the steps until it leapt"""
    seconds: float

    @property
    def times_sooner(self) -> float | None:
        """How many times sooner, at least, where waiting has not ended yet; None if the raced run has not leapt."""
        return None if self.raced is None else (self.watched if self.waited is None else self.waited) / self.raced


class Run:
    """A run outside our loop, as a user would have it."""

    def __init__(self, kind: Kind, seed: int) -> None:
        self.config = recipe(kind.recipe).but({**kind.changes, "training.seed": seed})
        self.task: Task
        self.model: nn.Module
        self.task, self.model = build(self.config)
        self.optimizer: Optimizer = make_optimiser(self.model, self.config.training)
        self.generator = Generator().manual_seed(seed)
        settings = self.config.training
        self.validation = self.task.sample(settings.validation_samples, Generator().manual_seed(VALIDATION_SEED), "validation")
        self.levels = self.task.levels(settings.label_smoothing)
        self.metrics: list[Metrics] = []

    def loss(self, model: nn.Module, batch: Batch) -> torch.Tensor:
        return self.task.loss(model(batch.inputs), batch, self.config.training.label_smoothing)

    def batches(self, count: int) -> Iterator[Batch]:
        for _ in range(count):
            yield self.task.sample(self.config.training.batch_size, self.generator, "train")

    def warm_up(self, steps: int) -> None:
        rate = learning_rate(self.config.training)
        for step, batch in enumerate(self.batches(steps)):
            set_learning_rate(self.optimizer, rate(step))
            self.step(batch)
        set_learning_rate(self.optimizer, self.config.training.lr)

    def step(self, batch: Batch) -> None:
        loss = self.loss(self.model, batch)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()

    @torch.no_grad()
    def has_leapt(self, step: int) -> bool:
        self.model.eval()
        outputs = torch.cat([self.model(part) for part in torch.split(self.validation.inputs, 256)])
        self.model.train()
        loss = float(self.task.loss(outputs, self.validation, self.config.training.label_smoothing))
        accuracy = float(self.task.accuracy(outputs, self.validation))
        self.metrics.append(Metrics(step, loss, accuracy, loss, accuracy, 0.0))
        return eureka_leap(self.metrics, self.levels) is not None

    def until_leap(self, done: int, most: int) -> int | None:
        """Train on; the step of the leap, counted from `done`."""
        if self.has_leapt(done):
            return done
        for step, batch in enumerate(self.batches(most - done), start=done + 1):
            self.step(batch)
            if step % EVERY == 0 and self.has_leapt(step):
                return step
        return None


def measure(name: str, seed: int, most: int | None = None) -> Outcome:
    """Race one run, and let it wait."""
    kind, begun = KINDS[name], time.perf_counter()
    run, most = Run(kind, seed), most or kind.most
    run.warm_up(kind.before)
    waiting = copy.deepcopy(run)
    race = eureka.race(run.model, list(run.batches(STEPS)), loss=run.loss, optimizer=run.optimizer, seed=seed)
    sys.stderr.write(f"{name}, seed {seed}, loss {race.losses['wait'][0]:.3f}:\n{race}\n")
    raced, watched = None, most if kind.healthy else 0
    if not kind.healthy and race.winner != "wait":
        race.apply()
        raced = run.until_leap(race.steps, most)
        watched = most if raced is None else math.ceil(WATCHED * raced)
    return Outcome(
        kind=name,
        seed=seed,
        loss=round(race.losses["wait"][0], 4),
        winner=race.winner,
        summary=race.summary,
        race_steps=race.steps,
        most=most,
        raced=raced,
        watched=watched,
        waited=waiting.until_leap(0, watched) if watched else None,
        seconds=round(time.perf_counter() - begun, 1),
    )


class Table:
    """Outcomes in a CSV file, a row each; without a folder they are only kept in mind."""

    def __init__(self, folder: Path | None) -> None:
        self.file = None if folder is None else folder / "outcomes.csv"
        self.outcomes = [] if self.file is None or not self.file.exists() else read(self.file)

    def has(self, kind: str, seed: int) -> bool:
        return any((one.kind, one.seed) == (kind, seed) for one in self.outcomes)

    def add(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        fresh = not self.file.exists()
        with self.file.open("a", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [one.name for one in fields(Outcome)])
            if fresh:
                writer.writeheader()
            writer.writerow(asdict(outcome))


def read(file: Path) -> list[Outcome]:
    """The outcomes of a CSV file."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [_outcome(row) for row in csv.DictReader(lines)]


def _outcome(row: dict[str, str]) -> Outcome:
    return Outcome(
        kind=row["kind"],
        seed=int(row["seed"]),
        loss=float(row["loss"]),
        winner=row["winner"],
        summary=row["summary"],
        race_steps=int(row["race_steps"]),
        most=int(row["most"]),
        raced=int(row["raced"]) if row["raced"] else None,
        watched=int(row["watched"]),
        waited=int(row["waited"]) if row["waited"] else None,
        seconds=float(row["seconds"]),
    )


def race(
    kinds: Annotated[str, typer.Option(metavar="A,B,…", help="Kinds of runs.")] = ",".join(KINDS),
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds from the first one on.")] = 3,
    first: Annotated[int, typer.Option(metavar="N", help="The first seed.")] = 0,
    most: Annotated[int | None, typer.Option(metavar="N", help="Steps after the race at most. (default: by kind)")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write outcomes.csv there; go on where it ends.")] = None,
    json: JsonOption = False,
) -> None:
    """Race stuck runs of several kinds, and healthy ones, and let them wait."""
    torch.set_num_threads(1)
    chosen = listed("--kinds", kinds, str)
    for name in chosen:
        if name not in KINDS:
            raise UnknownNameError("kind", name, KINDS)
    table = Table(out)
    for seed in range(first, first + seeds):
        for name in chosen:
            if not table.has(name, seed):
                table.add(measure(name, seed, most))
                sys.stderr.write(f"{row(table.outcomes[-1])}\n\n")
    found = sorted((one for one in table.outcomes if one.kind in chosen), key=lambda one: (chosen.index(one.kind), one.seed))
    if json:
        print_json([asdict(one) for one in found])
        return
    print_table(COLUMNS, map(row, found))
    for sentence in sentences(found):
        sys.stdout.write(f"{sentence}\n")


COLUMNS = ["kind", "seed", "loss", "winner", "race", "leaps, race counted", "leaps, waiting", "times sooner"]


def row(one: Outcome) -> list[str]:
    sooner = NONE if one.times_sooner is None else f"{'≥ ' if one.waited is None else ''}{one.times_sooner:.2f}"
    raced = NONE if KINDS[one.kind].healthy or one.winner == "wait" else _when(one.raced, one.most)
    return [
        one.kind,
        str(one.seed),
        f"{one.loss:.3f}",
        one.winner,
        str(one.race_steps),
        raced,
        _when(one.waited, one.watched),
        sooner,
    ]


def _when(step: int | None, most: int) -> str:
    if step is None:
        return f"after {most}" if most else NONE
    return str(step)


def sentences(found: Sequence[Outcome]) -> list[str]:
    """What the outcomes say of each kind."""
    return [_sentence(name, [one for one in found if one.kind == name]) for name in dict.fromkeys(one.kind for one in found)]


def _sentence(name: str, found: list[Outcome]) -> str:
    if KINDS[name].healthy:
        leapt = sum(one.waited is not None for one in found)
        told = sum(one.winner == "wait" for one in found)
        return f"{name}: told to wait in {told} of {len(found)}; {leapt} leapt by themselves"
    twice = sum((one.times_sooner or 0.0) >= 2 for one in found)
    middle = statistics.median(one.times_sooner or 0.0 for one in found)
    return f"{name}: at least twice as soon in {twice} of {len(found)}, {middle:.1f} times in the median"


if __name__ == "__main__":
    start(race)
