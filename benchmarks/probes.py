"""What linear probes cost: one answer, with one thread and with as many threads of BLAS as there are cores, in turns.

``python -m benchmarks.probes [--json]``
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.command import start
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.probes import linear

SAMPLES = 1024
SIZES = ((544, 2), (544, 10), (1088, 2), (1088, 10))
"""Features and classes of the probes of ``tiles``: z of a head and a block, for indicators and targets."""


@dataclass(frozen=True)
class ProbeCost:
    """Seconds of one probe by the clock on the wall: waiting is what is compared."""

    features: int
    classes: int
    one_thread: float
    all_threads: float

    @property
    def ratio(self) -> float:
        return self.all_threads / self.one_thread


def run(
    sizes: tuple[tuple[int, int], ...] = SIZES, rounds: int = 2, progress: Callable[[str], None] = lambda line: None
) -> list[ProbeCost]:
    """The fastest of some rounds, with and without threads in turns."""
    found = []
    linear.fit_probe(*answers(8, 2))  # scikit-learn is imported now, and not while something is timed
    for features, classes in sizes:
        progress(f"{features} features, {classes} classes")
        data = answers(features, classes)
        times = [(_seconds(linear.fit_probe, *data), _seconds(_with_threads, *data)) for _ in range(rounds)]
        found.append(ProbeCost(features, classes, min(one for one, _ in times), min(all_ for _, all_ in times)))
    return found


def answers(features: int, classes: int) -> tuple[Any, Any]:
    """Features in which the answer is written, under noise."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, classes, SAMPLES)
    return rng.normal(size=(SAMPLES, features)) + 0.3 * rng.normal(size=(classes, features))[y], y


def _with_threads(x: Any, y: Any) -> None:
    with linear.threads(os.cpu_count() or 1):
        linear.fitted(x, y)


def _seconds(job: Callable[[Any, Any], object], x: Any, y: Any) -> float:
    begun = time.perf_counter()
    job(x, y)
    return time.perf_counter() - begun


def main(json: JsonOption = False) -> None:
    """A linear probe with one thread beside the same with all threads of BLAS."""
    found = run(progress=say)
    if json:
        print_json({"rows": [asdict(cost) | {"ratio": cost.ratio} for cost in found]})
        return
    rows = [(str(c.features), str(c.classes), f"{c.one_thread:.2f}", f"{c.all_threads:.2f}", f"{c.ratio:.1f}") for c in found]
    print_table(["features", "classes", "seconds, one thread", "all threads", "ratio"], rows)


if __name__ == "__main__":
    start(main)
