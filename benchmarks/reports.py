"""What a large report takes: processor time, the peak of memory, and the size of the page.

``python -m benchmarks.reports [--runs 10000] [--lines 100] [--json]`` writes planted run folders and a report of them. A second
report has few runs with many lines. The peak is that of the larger report so far, and no less than this process has itself.
"""

from __future__ import annotations

import json as js
import random
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import start
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.recipes import recipe
from eureka.runs import Leap, Level, Metrics, Outcome, RunFolder, TaskRecord
from eureka.study.plan import Study

RATES, FIXES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2), ("softmax", "norm_softmax")
EVERY = 25
"""Steps between two lines."""
TASK = TaskRecord([Level("last", 0.624, 0.55), Level("all", 0.0, 1.0)])


@dataclass(frozen=True)
class Cost:
    """What one report takes."""

    runs: int
    lines_each: int
    processor_s: float
    peak_mb: float
    page_mb: float


def main(
    runs: Annotated[int, typer.Option(help="Runs of the first report; rounded up to whole seeds.")] = 10_000,
    lines: Annotated[int, typer.Option(help="Logged lines of each.")] = 100,
    json: JsonOption = False,
) -> None:
    """Write large reports and say what they take."""
    costs = [measured(runs, lines), measured(10, runs * lines // 10)]
    if json:
        print_json([asdict(cost) for cost in costs])
        return
    rows = [
        [f"{c.runs:,}", f"{c.lines_each:,}", f"{c.processor_s:.1f} s", f"{c.peak_mb:.0f} MB", f"{c.page_mb:.1f} MB"]
        for c in costs
    ]
    print_table(["runs", "lines each", "processor time", "peak of memory", "page"], rows)


def measured(runs: int, lines: int) -> Cost:
    """What `eureka report` takes, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        made, page = plant(Path(folder) / "runs", runs, lines), Path(folder) / "page.html"
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "eureka", "report", str(Path(folder) / "runs"), "-o", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(made, lines, spent, after.ru_maxrss / 1024, page.stat().st_size / 1e6)


def plant(folder: Path, runs: int, lines: int) -> int:
    """Run folders of which half have leapt, at random lines; how many there are."""
    seeds = -(-runs // (len(RATES) * len(FIXES)))
    over = {"training.seed": range(seeds), "training.lr": list(RATES), "attention.name": list(FIXES)}
    folders = Study.over(recipe("tiles"), over, folder, "tiles").prepare()
    chance = random.Random(0)
    for run in folders:
        fill(run, lines, chance)
    return len(folders)


def fill(run: RunFolder, lines: int, chance: random.Random) -> None:
    """Let a run that was prepared look as if it had ended."""
    run.write_task(TASK)
    at = chance.randrange(1, lines) if chance.random() < 0.5 else lines
    loss, accuracy = 0.63, 0.55
    with run.metrics_file.open("w", encoding="utf-8") as file:
        for line in range(lines):
            loss, accuracy = (0.05, 0.99) if line >= at else (0.63, 0.55)
            record = Metrics((line + 1) * EVERY, loss + chance.random() * 0.02, accuracy, loss, accuracy, 3e-4)
            file.write(js.dumps(record.to_json()) + "\n")
    step = (at + 1) * EVERY if at < lines else None
    leaps = (Leap(0, step, step),) if step is not None else ()
    run.write_result(Outcome("finished", lines * EVERY, 10.0, 1, step, step, leaps, loss, accuracy))


if __name__ == "__main__":
    start(main)
