"""How long waits on a plateau lasted in runs that we know, to say what may be expected of one that goes on.

`known_waits.csv` is written by ``python -m benchmarks.waits`` from the tables of runs in `results/`: runs of transformers with
plain softmax as they are drawn. Each was looked at after an eighth, a quarter and half of its steps. A look counts if the run
was still waiting, and the run has left in time if it leapt before twice that step. A ratio of steps has no unit, so that it can
be told of a log that counts epochs as well.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

TABLE = "known_waits.csv"
ENOUGH = 5
"""Looks at one setting that make its share worth telling."""


@dataclass(frozen=True)
class Look:
    """The runs of one task at one learning rate that were still waiting at a step."""

    task: str
    lr: str
    step: int
    waiting: int
    left: int
    """How many of them leapt before twice that step."""


@dataclass(frozen=True, kw_only=True)
class Waits:
    """How often a wait ended before it was twice as long."""

    waiting: int
    """Looks at runs that were still waiting."""
    left: int
    lowest: float
    """The least share of one task at one learning rate, and the greatest."""
    highest: float

    @property
    def share(self) -> float:
        return self.left / self.waiting

    def sentence(self) -> str:
        """
        >>> Waits(waiting=40, left=10, lowest=0.0, highest=0.6).sentence()
        '25 % of the small transformers we know left before they had waited twice as long (0 to 60 % by task and rate; 40 looks)'
        """
        spread = f"{100 * self.lowest:.0f} to {100 * self.highest:.0f} % by task and rate; {self.waiting} looks"
        return f"{100 * self.share:.0f} % of the small transformers we know left before they had waited twice as long ({spread})"


def summed(looks: Iterable[Look]) -> Waits | None:
    """What the looks say together; None if there are too few."""
    settings: dict[tuple[str, str], list[Look]] = defaultdict(list)
    for look in looks:
        settings[look.task, look.lr].append(look)
    counts = [(sum(one.waiting for one in same), sum(one.left for one in same)) for same in settings.values()]
    shares = [left / waiting for waiting, left in counts if waiting >= ENOUGH]
    if not shares:
        return None
    return Waits(
        waiting=sum(waiting for waiting, _ in counts),
        left=sum(left for _, left in counts),
        lowest=min(shares),
        highest=max(shares),
    )


def read_looks(text: str) -> list[Look]:
    """The rows of a table of looks."""
    rows = csv.DictReader(text.splitlines())
    return [Look(row["task"], row["lr"], int(row["step"]), int(row["waiting"]), int(row["left"])) for row in rows]


@cache
def known_waits() -> Waits | None:
    """What the shipped table says."""
    return summed(read_looks((resources.files("eureka.curves") / TABLE).read_text(encoding="utf-8")))
