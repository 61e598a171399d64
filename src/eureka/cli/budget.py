"""How long a command may take: `--budget 90s`, `10m`, `2h`, or `400steps`."""

from __future__ import annotations

import math
import re
from typing import Annotated, NamedTuple

import typer

from eureka.errors import RequestError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
BudgetOption = Annotated[str | None, typer.Option("--budget", metavar="TIME", help="Stop after this long, as in 90s, 45m or 2h.")]
TrialBudgetOption = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TIME|STEPS",
        help="What the experiments may cost, as in 90s, 10m or 400steps, the time of 400 training steps. Of a run folder, when to"
        " stop. (default: 10m; of a run folder none)",
    ),
]


class Budget(NamedTuple):
    """A limit in seconds or in training steps; the other one is infinite."""

    seconds: float = math.inf
    steps: float = math.inf

    def in_seconds(self, step_seconds: float) -> float:
        """Return the limit in seconds, where a step takes this long."""
        return min(self.seconds, self.steps * step_seconds)

    def part(self, share: float) -> Budget:
        """Return a part of it."""
        return Budget(share * self.seconds, share * self.steps)

    def without(self, seconds: float, step_seconds: float) -> Budget:
        """Return what is left after so many seconds."""
        return Budget(max(self.seconds - seconds, 0.0), max(self.steps - seconds / max(step_seconds, 1e-9), 0.0))


def parse_budget(text: str | None, otherwise: Budget, *, option: str = "--budget") -> Budget:
    """Return the budget that a text names.

    >>> parse_budget("2h", Budget()).seconds, parse_budget("400steps", Budget()).steps
    (7200.0, 400.0)
    """
    if text is None:
        return otherwise
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]|steps?)", text.strip())
    if not found or float(found[1]) <= 0:
        raise RequestError(f"{option} {text}: expected a time such as 90s, 45m or 2h, or a number of steps such as 400steps.")
    if found[2].startswith("step"):
        return Budget(steps=float(found[1]))
    return Budget(seconds=float(found[1]) * UNITS[found[2]])


def seconds(text: str | None) -> float:
    """Return the seconds that a text names; without a text there is no limit."""
    try:
        found = parse_budget(text, Budget())
    except RequestError:
        found = Budget(steps=0)
    if math.isfinite(found.steps):
        raise RequestError(f"--budget {text}: expected a time such as 90s, 45m or 2h.")
    return found.seconds
