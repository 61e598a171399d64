"""The accuracy of trained runs on data that they were not trained on: ``python -m benchmarks.shifted RUNS --set task.noise=1.5``.

Every run is built again at its newest checkpoint and asked the same new samples twice: of its own task, and of its task with the
changed settings. Runs that differ only in their seed share a row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import torch
import typer
from torch import Generator, nn

from benchmarks.command import start
from eureka.cli.options import JsonOption, assignments, print_json
from eureka.cli.table import print_table
from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.runs import RunFolder, find_runs
from eureka.snapshots import SEED, trained_snapshot
from eureka.tasks.task import Task

ENDED = ("finished", "stopped_early")


@dataclass(frozen=True)
class Shifted:
    """Runs that differ only in their seed: the mean and the lowest accuracy."""

    fix: str
    start: str
    lr: float
    runs: int
    own: float
    """on the task as trained"""
    own_lowest: float
    shifted: float
    """on the task with the changed settings"""
    shifted_lowest: float


def run(folders: Sequence[RunFolder], changes: Mapping[str, Any], samples: int = 4096) -> list[Shifted]:
    """A row for each fix, start and learning rate among the ended runs."""
    found: dict[tuple[str, str, float], list[tuple[float, float]]] = defaultdict(list)
    for folder in folders:
        stored, outcome = folder.config(), folder.result()
        if stored is None or outcome is None or outcome.status not in ENDED:
            continue
        config, snapshot = RunConfig.from_json(stored.parts), trained_snapshot(folder)
        shifted: Task = config.but(changes).task.build()
        if shifted.input_shape != snapshot.task.input_shape:
            shapes = f"{shifted.input_shape} instead of {snapshot.task.input_shape}"
            raise RequestError(f"{', '.join(changes)} changes the shape of the inputs, {shapes}; a trained model takes no other.")
        key = config.attention.name, str(config.flat().get("model.start", "paper")), config.training.lr
        found[key].append((accuracy(snapshot.model, snapshot.task, samples), accuracy(snapshot.model, shifted, samples)))
    return [_row(key, pairs) for key, pairs in sorted(found.items())]


def _row(key: tuple[str, str, float], pairs: list[tuple[float, float]]) -> Shifted:
    own, shifted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Shifted(*key, len(pairs), mean(own), min(own), mean(shifted), min(shifted))


@torch.no_grad()
def accuracy(model: nn.Module, task: Task, samples: int) -> float:
    """On samples that are the same for every run."""
    model.eval()
    batch = task.sample(samples, Generator().manual_seed(SEED), "validation")
    return float(task.accuracy(model(batch.inputs), batch).float().mean())


def main(
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A folder of runs that have ended.")],
    change: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="A setting of the task that is changed.")],
    samples: Annotated[int, typer.Option("--samples", min=1)] = 4096,
    json: JsonOption = False,
) -> None:
    """The accuracy of ended runs on their own task, and on the task with changed settings."""
    changes = assignments(change)
    if strange := [key for key in changes if not key.startswith("task.")]:
        raise RequestError(f"{strange[0]} is no setting of the task; only those can be changed after training.")
    torch.set_num_threads(1)
    rows = run(find_runs(runs), changes, samples)
    if not rows:
        raise RequestError(f"{runs} holds no run that has ended.")
    if json:
        print_json({"rows": [asdict(row) for row in rows]})
        return
    print_table(
        ["fix", "learning rate", "model.start", "runs", "accuracy", "lowest", f"with {' '.join(change)}", "lowest"],
        [
            (r.fix, f"{r.lr:g}", r.start, str(r.runs), *(f"{x:.3f}" for x in (r.own, r.own_lowest, r.shifted, r.shifted_lowest)))
            for r in rows
        ],
    )


if __name__ == "__main__":
    start(main)
