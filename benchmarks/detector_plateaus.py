"""Plateaus while a run goes on, beside those seen in hindsight: ``python -m benchmarks.detector_plateaus [FILE…] [--curves N]``.

Each curve is fed to `OnlineDetector` point by point. A ``plateau_entered`` outside of every plateau that `find_plateaus` sees in
the whole curve is a false alarm; the delay is counted from where hindsight lets the plateau begin. Files are CSV, step and loss.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from benchmarks.command import start
from benchmarks.detector_quality import MODERATE
from eureka.curves.grid import Array
from eureka.curves.online import OnlineDetector
from eureka.curves.plateaus import find_plateaus
from eureka.curves.sketch import Difficulty
from eureka.curves.synthetic import plant

DESCENTS = ("power_law", "slide", "warm_down", "spikes")
"""Kinds of planted curves that go down all the time."""
RESTING = ("single", "sloping", "staircase", "early", "after_a_huge_fall", "exponential", "flat")
"""Kinds with plateaus."""
SLACK = 0.02
"""How far from a plateau an event may be, as a share of the curve."""


@dataclass
class PlateauCount:
    """Events and plateaus of several curves."""

    curves: int = 0
    points: int = 0
    plateaus: int = 0
    noticed: int = 0
    false: int = 0
    delays: list[float] = field(default_factory=list)
    """Points from the beginning of a plateau to its first event."""

    def add(self, steps: Array, values: Array) -> None:
        finite = np.isfinite(values)
        steps, values = steps[finite], values[finite]
        slack = SLACK * float(steps[-1] - steps[0])
        plateaus, events = find_plateaus(values, steps), plateau_events(steps, values)
        self.curves, self.points, self.plateaus = self.curves + 1, self.points + len(steps), self.plateaus + len(plateaus)
        for plateau in plateaus:
            inside = [event for event in events if plateau.start - slack <= event <= plateau.end + slack]
            if inside:
                self.noticed += 1
                self.delays.append(float(((steps > plateau.start) & (steps <= inside[0])).sum()))
        self.false += sum(not any(one.start - slack <= event <= one.end + slack for one in plateaus) for event in events)

    def line(self, name: str) -> str:
        delay = f"{np.median(self.delays):9.0f}" if self.delays else f"{'–':>9}"
        rate = 1e4 * self.false / max(self.points, 1)
        return f"{name:34} {self.curves:6d} {self.points:8d} {self.noticed:7d} of {self.plateaus:3d} {rate:18.2f} {delay}\n"


def plateau_events(steps: Array, values: Array) -> list[float]:
    """The steps at which the online detector says that a plateau was entered."""
    detector = OnlineDetector()
    events = (detector.update(step, value) for step, value in zip(steps.tolist(), values.tolist(), strict=True))
    return [event.step for event in events if event is not None and event.name == "plateau_entered"]


def planted_count(kinds: Sequence[str], count: int, seed: int) -> PlateauCount:
    rng, counted = np.random.default_rng(seed), PlateauCount()
    for kind in kinds:
        for _ in range(count):
            curve = plant(kind, rng, Difficulty(noise=MODERATE))
            counted.add(curve.steps, curve.values)
    return counted


def published_counts(files: Iterable[Path]) -> dict[str, PlateauCount]:
    counts = {}
    for path in files:
        counts[path.name] = PlateauCount()
        steps, values = np.genfromtxt(path, delimiter=",", skip_header=1)[:, :2].T
        counts[path.name].add(steps, values)
    return counts


def main(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE…", help="Published curves: CSV with step and loss.")] = None,
    curves: Annotated[int, typer.Option("--curves", metavar="N", min=1, help="Planted curves of each kind.")] = 20,
) -> None:
    """Plateaus noticed, false alarms and delay of the online detector, on planted and on published curves."""
    counts = {
        "planted, always going down": planted_count(DESCENTS, curves, seed=31),
        "planted, with plateaus": planted_count(RESTING, curves, seed=32),
        **published_counts(files or []),
    }
    out = sys.stdout.write
    out(f"{'':34} curves   points        noticed  false / 10,000 pts  delay, pts\n")
    for name, counted in counts.items():
        out(counted.line(name))


if __name__ == "__main__":
    start(main)
