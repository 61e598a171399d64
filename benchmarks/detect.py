"""Our detector beside ruptures' change-point searches: ``python -m benchmarks.detect [--curves N] [--json]``.

All get the same planted curves. ruptures finds changes of level, not Eureka-moments; so every change to a lower level counts as a
report, at its place. Each search gets the penalty, of a grid, that scores best on these very curves, which no user would know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.command import start
from benchmarks.detector_quality import BORDER, MODERATE
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.curves.detector import detect
from eureka.curves.grid import Array, clean, even_grid
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.score import Score
from eureka.curves.sketch import Difficulty, Planted, Truth
from eureka.curves.synthetic import MAKERS, plant
from eureka.errors import MissingExtraError

PENALTIES = (10.0, 100.0, 1e3, 1e4, 1e5, 1e6)
"""In units of the variance of the noise."""
POINTS = 1000
"""ruptures gets a curve averaged to this many points: the time of its exact searches grows with the square of their number."""
MARGIN = 1.0
"""How far from the truth a report may be, in lengths of the drop: wide, because a change point is not the steepest step."""
LONG, RAW = 1_000_000, 30_000
"""Points of one long curve for our detector, and of one that the fastest search of ruptures gets without averaging."""


@dataclass(frozen=True)
class Result:
    """What one detector found in all curves, or in one long curve."""

    detector: str
    curves: int
    precision: float
    recall: float
    seconds: float
    points: int


Search = Callable[[Array, float], list[int]]


def searches() -> dict[str, Search]:
    """ruptures' searches: the signal and a penalty in, the places of the changes out."""
    try:
        import ruptures
    except ImportError:
        raise MissingExtraError("ruptures", "dev") from None

    def pelt(y: Array, penalty: float) -> list[int]:
        return list(ruptures.Pelt(model="l2").fit(y).predict(pen=penalty))

    def binary(y: Array, penalty: float) -> list[int]:
        return list(ruptures.Binseg(model="l2").fit(y).predict(pen=penalty))

    def kernel(y: Array, penalty: float) -> list[int]:
        return list(ruptures.KernelCPD(kernel="rbf").fit(y).predict(pen=penalty))

    return {"ruptures Pelt": pelt, "ruptures Binseg": binary, "ruptures KernelCPD": kernel}


def planted(count: int, seed: int) -> list[Planted]:
    """`count` curves of every kind, but for those on which people would disagree about the truth."""
    rng = np.random.default_rng(seed)
    return [plant(kind, rng, Difficulty(noise=MODERATE)) for kind in MAKERS if kind not in BORDER for _ in range(count)]


def changes(search: Search, curve: Planted, penalty: float, points: int = POINTS) -> list[EurekaMoment]:
    """The changes to a lower level that a search reports, in the form of moments."""
    grid = even_grid(*clean(curve.values, curve.steps), points)
    y = grid.values
    noise = float(np.median(np.abs(np.diff(y)))) / (0.6745 * np.sqrt(2.0)) or 1e-12
    ends = search(y / noise, penalty)
    bounds = [0, *ends]
    levels = [float(y[a:b].mean()) for a, b in zip(bounds, ends, strict=False)]
    out = []
    for place, before, after in zip(ends, levels, levels[1:], strict=False):
        if after < before:
            step = grid.step(place - 0.5)
            flat = Plateau(start=step, end=step, level=before)
            out.append(
                EurekaMoment(onset=step, steepest=step, end=step, before=before, after=after, plateau=flat, confidence=1.0)
            )
    return out


def timed(find: Callable[[Planted], Sequence[EurekaMoment]], curves: Sequence[Planted]) -> tuple[Score, float]:
    score, begun = Score(), time.process_time()
    found = [find(curve) for curve in curves]
    spent = time.process_time() - begun
    for moments, curve in zip(found, curves, strict=True):
        score.add(moments, curve, MARGIN)
    return score, spent


def result_of(name: str, score: Score, seconds: float, curves: Sequence[Planted]) -> Result:
    points = sum(len(curve.steps) for curve in curves)
    return Result(name, score.curves, round(score.precision, 3), round(score.recall, 3), round(seconds, 3), points)


def best_of(name: str, search: Search, curves: Sequence[Planted]) -> Result:
    """The result of a search at the penalty with the greatest F₁ on these curves; its time is that of one pass."""

    def f1(score: Score) -> float:
        both = score.precision + score.recall
        return 2.0 * score.precision * score.recall / both if both else 0.0

    passes = [timed(lambda curve, pen=pen: changes(search, curve, pen), curves) for pen in PENALTIES]  # type: ignore[misc]
    score, seconds = max(passes, key=lambda one: f1(one[0]))
    return result_of(name, score, seconds, curves)


def long_curve(points: int = LONG) -> Planted:
    """One moment in a very long log."""
    t = np.arange(points, dtype=float)
    at, time_ = 0.6 * points, 0.005 * points
    y = 2.0 - 1.5 / (1.0 + np.exp(-(t - at) / time_)) + 0.05 * np.random.default_rng(0).standard_normal(points)
    return Planted(name="long", steps=t, values=y, truths=(Truth(onset=at - 3 * time_, steepest=at, end=at + 3 * time_),))


def run(count: int = 10, seed: int = 31, progress: Callable[[str], None] | None = None) -> list[Result]:
    """Every detector on the same curves, then ours and the fastest of the others on one curve of a million points."""
    say = progress or (lambda _line: None)
    curves, long = planted(count, seed), [long_curve()]
    detect(long[0].values[:10_000])
    results = []

    def ours(name: str, given: Sequence[Planted]) -> None:
        say(name)
        found = timed(lambda curve: detect(curve.values, curve.steps, lr=curve.lr), given)
        results.append(result_of(name, *found, given))

    ours("eureka", curves)
    for name, search in searches().items():
        say(name)
        results.append(best_of(name, search, curves))
    ours("eureka, one long curve", long)
    raw, binary = [long_curve(RAW)], searches()["ruptures Binseg"]
    ours("eureka, one curve as it is", raw)
    found = timed(lambda curve: changes(binary, curve, 1e4, points=RAW), raw)
    results.append(result_of("ruptures Binseg, one curve as it is", *found, raw))
    return results


def main(
    json: JsonOption = False,
    curves: Annotated[int, typer.Option("--curves", metavar="N", min=1, help="Planted curves of each kind.")] = 10,
) -> None:
    """Our detector of Eureka-moments beside ruptures' change-point searches, each at its best penalty, on the same curves."""
    results = run(curves, progress=lambda line: typer.echo(f"{line} …", err=True))
    if json:
        print_json({"rows": [asdict(result) for result in results]})
        return
    print_table(
        ["detector", "curves", "precision", "recall", "seconds", "points"],
        [
            (one.detector, str(one.curves), f"{one.precision:.3f}", f"{one.recall:.3f}", f"{one.seconds:.2f}", f"{one.points:,}")
            for one in results
        ],
    )


if __name__ == "__main__":
    start(main)
