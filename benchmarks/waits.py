"""The table of known waits, from the tables of runs in `results/`: ``python -m benchmarks.waits [--write]``.

Only runs with plain softmax as they are drawn count: a wait in someone's log has no fix. A run that two tables hold counts once.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import start
from eureka.curves.waits import TABLE, Look, read_looks, summed
from eureka.files import write_whole

ROOT = Path(__file__).parents[1]
PLAIN = {"attention.name": "softmax", "model.start": "paper", "model.qk_init_scale": "1.0", "training.qk_lr_scale": "1.0"}
"""Settings of a run that counts, where its table has them."""
NO_TRANSFORMER = ("resnet",)
"""Studies of models that have no attention, whatever their configs say of it."""
SHARES = (8, 4, 2)
"""A run is looked at at its last step divided by each of these."""


@dataclass(frozen=True)
class Waited:
    """A run: how many steps it was given, and the step of its leap, if it has leapt."""

    name: str
    task: str
    lr: str
    steps: int
    leap: int | None


def waited(path: Path) -> list[Waited]:
    """The plain runs of one table; its folder names the task."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if all(row.get(key, value) == value for key, value in PLAIN.items())]
    task, steps = path.parent.name, max(int(row["steps"]) for row in rows)  # those of a run that never leapt
    return [
        Waited(
            name=row["run"],
            task=f"{task} of {row['task.decisions']}" if row.get("task.decisions") else task,
            lr=row["training.lr"],
            steps=steps,
            leap=int(row["onset_step"]) if row["onset_step"] else None,
        )
        for row in rows
        if row["status"] in ("finished", "stopped_early")
    ]


def looks(runs: Sequence[Waited]) -> Iterable[Look]:
    """The looks at runs of each task and learning rate."""
    for task, lr, steps in dict.fromkeys((run.task, run.lr, run.steps) for run in runs):
        for share in SHARES:
            step = steps // share
            same = [run for run in runs if (run.task, run.lr, run.steps) == (task, lr, steps)]
            waiting = [run for run in same if run.leap is None or run.leap > step]
            left = sum(run.leap is not None and run.leap <= 2 * step for run in waiting)
            yield Look(task, lr, step, len(waiting), left)


def table() -> str:
    """The shipped table as text."""
    tables = [path for path in sorted(ROOT.glob("results/**/runs.csv")) if path.parent.name not in NO_TRANSFORMER]
    runs = {run.name: run for path in tables for run in waited(path)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(field.name for field in fields(Look))
    writer.writerows(astuple(look) for look in looks(list(runs.values())) if look.waiting)
    return out.getvalue()


def main(write: Annotated[bool, typer.Option("--write", help="Write it into the package.")] = False) -> None:
    """Print the table of known waits and what it says."""
    text = table()
    found = summed(read_looks(text))
    sys.stdout.write(text + ("no basis" if found is None else found.sentence()) + "\n")
    if write:
        write_whole(ROOT / "src" / "eureka" / "curves" / TABLE, text.encode())


if __name__ == "__main__":
    start(main)
