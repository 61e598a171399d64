"""How a study is doing now, as the page that follows it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from eureka.formats import duration, fixed, plural
from eureka.runs import Run
from eureka.study.arms import group_runs
from eureka.study.durations import seconds_left
from eureka.study.status import Phase, RunStatus

MOST_LINES = 200
"""Runs that the page lists, at most: those at work before those that wait, and last those that have ended."""
WORDS: dict[Phase, str] = {
    "starting": "starting",
    "learning": "learning",
    "plateau": "on a plateau",
    "eureka": "past the Eureka-moment",
    "interrupted": "interrupted",
    "waiting": "waiting",
    "diverged": "diverged",
    "ended": "ended",
}
"""The phases in the order in which people ask about them."""
UNREADABLE = "unreadable"

Seen = tuple[Run, RunStatus]
"""A run and how it is doing."""


@dataclass(frozen=True)
class PhaseCount:
    phase: str
    word: str
    runs: int


@dataclass(frozen=True)
class LiveRun:
    """One run, as text."""

    name: str
    step: str
    loss: str
    accuracy: str
    phase: str
    text: str


@dataclass(frozen=True)
class LiveState:
    mark: str
    """changes when the report would"""
    runs: int
    ended: int
    share: float
    """of all steps; those that a run did not need count as done"""
    left: str
    """how much time is left, in words"""
    phases: list[PhaseCount]
    lines: list[LiveRun]
    more: str
    """how many runs are not listed, in words; empty if all are"""
    note: str
    """what has to be said besides"""
    pause: float
    """seconds until the page should ask again"""


def live_state(
    seen: Sequence[Seen], unreadable: Sequence[tuple[str, str]], *, mark: str, note: str, pace: float | None, pause: float
) -> LiveState:
    """The state of a study.

    unreadable   runs whose files cannot be used, by name, and why
    pace         steps a second of all runs together, as far as it was seen
    """
    counts = Counter(status.phase for _, status in seen)
    phases = [PhaseCount(phase, word, counts[phase]) for phase, word in WORDS.items() if counts[phase]]
    if unreadable:
        phases.append(PhaseCount(UNREADABLE, UNREADABLE, len(unreadable)))
    runs, ended = len(seen) + len(unreadable), sum(run.outcome is not None for run, _ in seen)
    lines = _lines(seen, unreadable)
    more = plural(len(lines) - MOST_LINES, "more run") if len(lines) > MOST_LINES else ""
    shown = lines[:MOST_LINES]
    return LiveState(mark, runs, ended, _share(seen), _left(seen, pace), phases, shown, more, note, pause)


def _share(seen: Sequence[Seen]) -> float:
    steps = sum(status.steps for _, status in seen)
    done = sum(status.steps if run.outcome is not None else status.step for run, status in seen)
    return done / steps if steps else 0.0


def _left(seen: Sequence[Seen], pace: float | None) -> str:
    if not seen:
        return ""
    if all(run.outcome is not None for run, _ in seen):
        return "all runs have ended"
    if not any(status.live for _, status in seen):
        return "nobody is at work on the others; the command that began them goes on with them"
    left = seconds_left(seen, pace)
    return "time left: not known yet" if left is None else f"about {duration(left)} left"


def _lines(seen: Sequence[Seen], unreadable: Sequence[tuple[str, str]]) -> list[LiveRun]:
    """All runs in the order of their labels; if they are too many, by phase first."""
    label = group_runs([run for run, _ in seen]).label
    order = list(WORDS)
    many = len(seen) > MOST_LINES
    chosen = sorted(seen, key=lambda one: order.index(one[1].phase)) if many else seen
    lost = [LiveRun(name, "", "", "", UNREADABLE, why) for name, why in unreadable]
    return lost + [_line(label(run), status) for run, status in chosen]


def _line(name: str, status: RunStatus) -> LiveRun:
    step = f"{status.step:,} / {status.steps:,}"
    return LiveRun(name, step, fixed(status.loss), fixed(status.accuracy), status.phase, status.text)
