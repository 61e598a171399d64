"""What a tool answered, beside the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["first", "first three", "wrong", "silent", "false alarm", "quiet", "failed"]


@dataclass(frozen=True)
class Answer:
    """The findings of a tool, the surest first, each as the causes that it can be read as; empty where it names no cause of ours.

    seconds   what the answer took, without the training that came before; None where it is part of that
    step      seconds of one training step of the same run
    """

    findings: tuple[frozenset[str], ...]
    seconds: float | None = None
    step: float | None = None
    error: str | None = None

    @property
    def cost(self) -> float | None:
        """In training steps."""
        return None if self.seconds is None or not self.step else self.seconds / self.step


@dataclass(frozen=True)
class Judged:
    """One case: the truth, the answer, and what to make of it."""

    tool: str
    name: str
    cause: str
    kind: str
    verdict: Verdict
    found: tuple[str, ...]
    cost: float | None
    error: str | None = None


def verdict(cause: str, also: Sequence[str], answer: Answer) -> Verdict:
    """A healthy run is judged by what is said against it; a fault by the place of its cause among the findings."""
    right = {cause, *also}
    if answer.error is not None:
        return "failed"
    if cause == "healthy":
        return "quiet" if all(finding & right for finding in answer.findings) else "false alarm"
    hits = [bool(finding & right) for finding in answer.findings]
    if not hits:
        return "silent"
    if hits[0]:
        return "first"
    return "first three" if any(hits[:3]) else "wrong"


@dataclass(frozen=True)
class Tally:
    """The table's row of a tool."""

    tool: str
    faults: int
    first: float
    first_three: float
    wrong: float
    silent: float
    healthy: int
    false_alarms: int
    failed: int
    median_cost: float | None
    largest_cost: float | None


def tally(tool: str, judged: Sequence[Judged]) -> Tally:
    """Shares are of the planted faults; a case on which the tool failed counts as one that it does not find."""
    faults = [one for one in judged if one.cause != "healthy"]
    healthy = [one for one in judged if one.cause == "healthy"]
    costs = sorted(one.cost for one in judged if one.cost is not None)

    def share(*wanted: Verdict) -> float:
        return sum(one.verdict in wanted for one in faults) / max(1, len(faults))

    return Tally(
        tool,
        len(faults),
        share("first"),
        share("first", "first three"),
        share("wrong"),
        share("silent"),
        len(healthy),
        sum(one.verdict == "false alarm" for one in healthy),
        sum(one.verdict == "failed" for one in judged),
        costs[len(costs) // 2] if costs else None,
        costs[-1] if costs else None,
    )
