"""What our training loop costs beside the plainest loop, how near it comes to the machine's matrix-multiply rate, and the pool.

Both loops do the same steps of the same model in turns and validate as often; ours also logs and looks at
attention, at its default rates.

``python -m benchmarks.training [--recipes A,B,…] [--json]``
"""

from __future__ import annotations

import contextlib
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from benchmarks.command import start
from benchmarks.pool import pool_cost, staying
from benchmarks.step_floor import step_floor
from eureka.bench.timing import Job, interleaved
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, listed, print_json
from eureka.cli.table import print_table
from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.experiment import build
from eureka.recipes import RECIPES, recipe
from eureka.runs import RunFolder
from eureka.tasks.task import Task
from eureka.training.loop import Loop
from eureka.training.optimiser import make_optimiser

CHOSEN = [*(name for name in RECIPES if "/" not in name or name.startswith("small/")), "paper/main"]
MATRIX = 1024
LARGEST = 2e10
"""Floating-point operations of the largest step that is timed."""


@dataclass(frozen=True)
class Shares:
    """What the share of the matrix-multiply rate would be if only these took time (`benchmarks.step_floor`)."""

    products: float
    """the step's matrix products, of these very shapes"""
    and_passes: float
    """and its other operations at the rate of a copy"""
    and_operations: float
    """and its other operations, each as fast as it is alone"""


@dataclass(frozen=True)
class LoopCost:
    """What a step of our loop costs with one recipe on one thread."""

    recipe: str
    batch_size: int
    vs_bare_loop: float
    share_of_matmul_rate: float
    at_most: Shares
    samples_per_s: float


@dataclass(frozen=True)
class TrainingCosts:
    """Everything that this benchmark prints."""

    rows: list[LoopCost]
    skipped: dict[str, str]
    """recipes whose data is not on this machine, with the reason"""
    matmul_gflops: float
    pool_efficiency: float


def run(
    recipes: Sequence[str] = CHOSEN, *, rounds: int = 4, progress: Callable[[str], None] = lambda line: None
) -> TrainingCosts:
    """The cost of every recipe's step, and how well the pool uses the cores."""
    torch.set_num_threads(1)
    configs = {name: recipe(name) for name in recipes}  # a wrong name is an error before anything is measured
    rate = matmul_rate()
    costs, skipped = [], {}
    for name, config in configs.items():
        progress(name)
        try:
            costs.append(loop_cost(name, config, rate, rounds))
        except RequestError as error:  # data that is not on this machine
            skipped[name] = str(error)
    progress("pool")
    return TrainingCosts(
        rows=costs,
        skipped=skipped,
        matmul_gflops=rate / 1e9,
        pool_efficiency=pool_cost("", staying, runs=6, steps=800).efficiency,
    )


def loop_cost(name: str, config: RunConfig, rate: float, rounds: int) -> LoopCost:
    """Our step with its share of a log, a validation, a probe and a map of attention, against a bare one with the validation."""
    flops = step_flops(config)
    if flops > LARGEST:  # a recipe for a GPU: the same step and the same validation with fewer samples
        sizes = {"batch_size": config.training.batch_size, "validation_samples": config.training.validation_samples}
        config = config.but({f"training.{key}": max(1, int(size * LARGEST / flops)) for key, size in sizes.items()})
        flops = step_flops(config)
    with tempfile.TemporaryDirectory() as place, probed_loop(config, Path(place) / "probed") as probed:
        loop = make_loop(config, Path(place) / "plain")
        jobs = {"ours": lambda: our_step(loop), "log": lambda: our_log(loop), **_bare(config)}
        jobs |= {"probed": lambda: our_step(probed), "map": lambda: probed.attention.draw(0)}
        times = interleaved(jobs, rounds, budget=30.0)
    floor = step_floor(jobs["bare"], rounds)
    ours = times["ours"] + times["log"] / config.training.log_every + times["map"] / loop.attention.map_every
    if config.training.probe_every:
        ours += (times["probed"] - times["ours"]) / config.training.probe_every
    return LoopCost(
        recipe=name,
        batch_size=config.training.batch_size,
        vs_bare_loop=ours / (times["bare"] + times["validation"] / config.training.log_every),
        share_of_matmul_rate=flops / ours / rate,
        at_most=Shares(*(_share(flops, rate, floor.products + rest) for rest in (0.0, floor.passes, floor.others))),
        samples_per_s=config.training.batch_size / ours,
    )


def _share(flops: float, rate: float, seconds: float) -> float:
    return flops / rate / seconds if seconds else math.nan  # a step that is too small has nothing to time


def make_loop(config: RunConfig, place: Path) -> Loop:
    task, model = build(config)
    folder = RunFolder(place)
    folder.create()
    loop = Loop(model, task, config.training, folder)
    loop.progress.resume(None)
    return loop


@contextlib.contextmanager
def probed_loop(config: RunConfig, place: Path) -> Iterator[Loop]:
    """A loop that looks at every step, if it looks at any."""
    loop = make_loop(config.but({"training.probe_every": min(1, config.training.probe_every)}), place)
    loop.attention.resume(None)
    with loop.attention.measuring(0):
        yield loop


def our_step(loop: Loop) -> None:
    loop.step %= loop.config.steps - 1  # the bench may need more steps than the recipe has
    loop.train_step()
    loop.replicas.agree(0)


def our_log(loop: Loop) -> None:
    loop.progress.count = max(1, loop.progress.count)
    loop.log()


def _bare(config: RunConfig) -> dict[str, Job]:
    """What the plainest loop does: steps, and the same validation."""
    task, model = build(config)
    optimiser = make_optimiser(model, config.training)
    generator, size = torch.Generator().manual_seed(config.training.seed), config.training.batch_size
    return {"bare": lambda: _bare_step(task, model, optimiser, generator, size), "validation": bare_validation(config)}


def bare_validation(config: RunConfig) -> Job:
    """Loss and accuracy on as many samples as our loop validates on."""
    task, model = build(config)
    held_out = task.sample(config.training.validation_samples, torch.Generator().manual_seed(0), "validation")

    @torch.no_grad()
    def validation() -> None:
        outputs = torch.cat([model(part) for part in torch.split(held_out.inputs, config.training.batch_size)])
        task.loss(outputs, held_out).item()
        task.accuracy(outputs, held_out).item()

    return validation


def _bare_step(task: Task, model: nn.Module, optimiser: torch.optim.Optimizer, generator: torch.Generator, size: int) -> None:
    batch = task.sample(size, generator)
    loss = task.loss(model(batch.inputs), batch)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()


def step_flops(config: RunConfig) -> float:
    """Floating-point operations of the matrix products of one step, forward and backward."""
    from torch.utils.flop_counter import FlopCounterMode

    task, model = build(config)
    few = min(8, config.training.batch_size)  # the count is proportional to the batch
    batch = task.sample(few, torch.Generator().manual_seed(0))
    with FlopCounterMode(display=False) as counter:
        task.loss(model(batch.inputs), batch).backward()  # type: ignore[no-untyped-call]
    return float(counter.get_total_flops()) * config.training.batch_size / few


def matmul_rate(rounds: int = 20) -> float:
    """Floating-point operations a second of a large float32 matrix product on one thread: the machine's limit."""
    a, b = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    seconds = interleaved({"product": lambda: a @ b}, rounds)["product"]
    return 2 * MATRIX**3 / seconds


def main(
    json: JsonOption = False,
    recipes: Annotated[str | None, typer.Option("--recipes", metavar="A,B,…", help="Only these recipes.")] = None,
) -> None:
    """Our training step beside the plainest loop and the machine's matrix-multiply rate; how well the pool uses the cores."""
    found = run(listed("--recipes", recipes, str) if recipes else CHOSEN, progress=say)
    if json:
        print_json(asdict(found))
        return
    print_table(
        ["recipe", "batch", "× bare loop", "share of matmul rate", "at most", "samples a second"],
        [
            (
                c.recipe,
                str(c.batch_size),
                f"{c.vs_bare_loop:.2f}",
                f"{c.share_of_matmul_rate:.2f}",
                f"{c.at_most.products:.2f} {c.at_most.and_passes:.2f} {c.at_most.and_operations:.2f}",
                f"{c.samples_per_s:,.0f}",
            )
            for c in found.rows
        ],
    )
    sys.stdout.write(
        "at most: with the step's matrix products alone; with its other passes at the rate of a copy; or with every other "
        "operation as fast as it is alone.\n"
    )
    for name, reason in found.skipped.items():
        sys.stdout.write(f"{name} was left out: {reason}\n")
    sys.stdout.write(f"pool efficiency {found.pool_efficiency:.2f}, matrix products {found.matmul_gflops:.0f} GFLOP/s\n")


if __name__ == "__main__":
    start(main)
