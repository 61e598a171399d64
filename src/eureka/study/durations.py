"""How long runs will take, judged by those that have ended."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Sequence

from eureka.runs import Run
from eureka.study.arms import ArmKey, ConditionKey

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
    return _time_for([START_SECONDS + statistics.fmean(took.get(_cell(run), [everywhere])) for run in runs], workers)


def _seconds(known: Sequence[Run]) -> dict[CellKey, list[float]]:
    found: dict[CellKey, list[float]] = {}
    for run in known:
        if run.outcome is not None:
            found.setdefault(_cell(run), []).append(run.outcome.seconds)
    return found


def _cell(run: Run) -> CellKey:
    return ConditionKey.of(run.config), ArmKey.of(run.config), run.config.lr


def _time_for(each: Sequence[float], workers: int) -> float:
    """When the last worker is done, if the longest are begun first, as pools do."""
    busy_until = [WORKER_SECONDS if each else 0.0] * max(1, workers)
    for seconds in sorted(each, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + seconds)
    return max(busy_until)
