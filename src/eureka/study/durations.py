"""How long runs will take, judged by those that have ended."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence

from eureka.runs import Outcome, Run
from eureka.study.arms import ArmKey, ConditionKey
from eureka.study.status import RunStatus

WORKER_SECONDS = 4.0
"""What a worker needs before its first run, most of it to import torch."""
START_SECONDS = 0.3
"""What a run needs before its first step; the seconds of an outcome leave it out."""

CellKey = tuple[ConditionKey, ArmKey, float]


def expected_seconds(runs: Sequence[Run], known: Sequence[Run], workers: int) -> float | None:
    """How long so many workers take for these runs; None while none is known that has ended.

    A run takes as long as those of its own cell did on average, or, in a cell where none has ended, as long as all did.
    """
    took = _seconds(known)
    if not took:
        return None
    everywhere = statistics.fmean(seconds for cell in took.values() for seconds in cell)
    return _time_for(
        [START_SECONDS + statistics.fmean(took.get(_cell(run), [everywhere])) for run in runs], workers, WORKER_SECONDS
    )


def seconds_left(runs: Sequence[tuple[Run, RunStatus]], pace: float | None = None) -> float | None:
    """How long it takes until all runs have ended, as many at a time as are at work now; None where that is not known.

    pace   steps a second of all runs together, by which it is judged as long as no run has ended
    """
    workers = sum(status.live for _, status in runs)
    left = [(run, status) for run, status in runs if run.outcome is None]
    if not left:
        return 0.0
    if not workers:
        return None
    ended: dict[CellKey, list[Outcome]] = {}
    for run, _ in runs:
        if run.outcome is not None:
            ended.setdefault(_cell(run), []).append(run.outcome)
    if ended:
        every = [outcome for those in ended.values() for outcome in those]
        return _time_for([_rest(status, ended.get(_cell(run), every)) for run, status in left], workers)
    return sum(status.steps - status.step for _, status in left) / pace if pace else None


def _rest(status: RunStatus, alike: Sequence[Outcome]) -> float:
    """The seconds that a run still needs if it goes as those that have ended did."""
    seconds, steps = (statistics.fmean(values) for values in zip(*((one.seconds, one.steps) for one in alike), strict=True))
    start = START_SECONDS if status.step == 0 else 0.0
    return start + seconds * max(0.0, 1 - status.step / max(1.0, steps))


def _seconds(known: Sequence[Run]) -> dict[CellKey, list[float]]:
    found: dict[CellKey, list[float]] = {}
    for run in known:
        if run.outcome is not None:
            found.setdefault(_cell(run), []).append(run.outcome.seconds)
    return found


def _cell(run: Run) -> CellKey:
    return ConditionKey.of(run.config), ArmKey.of(run.config), run.config.lr


def _time_for(each: Sequence[float], workers: int, first: float = 0.0) -> float:
    """When the last worker is done, if the longest are begun first, as pools do.

    first   seconds before a worker begins
    """
    busy_until = [first if each else 0.0] * max(1, workers)
    for seconds in sorted(each, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + seconds)
    return max(busy_until)
