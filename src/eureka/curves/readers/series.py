"""What every reader gives: the names of the columns of a log, and the series that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eureka.curves.grid import Array

ROWS = "row number"
"""The name of the step when a log has none."""
KEPT = 2_000_000
"""Points kept of one series; in longer ones neighbours are averaged until they fit."""


class Series:
    """Collects the finite points of a series of any length in bounded memory.

    >>> series = Series(limit=4)
    >>> for i in range(3): series.add(np.arange(2.0) + 2 * i, np.zeros(2))
    >>> series.result()[0].tolist(), series.points
    ([0.5, 2.5, 4.5], 6)
    """

    def __init__(self, limit: int = KEPT) -> None:
        self.limit, self.points = limit, 0
        self._every = 1
        self._kept: list[tuple[Array, Array]] = []
        self._size = 0
        self._rest: tuple[Array, Array] = (np.empty(0), np.empty(0))

    def add(self, steps: Array, values: Array) -> None:
        """Add points; those at which the step or the value is not a finite number are left out."""
        good = np.isfinite(steps) & np.isfinite(values)
        if not good.all():
            steps, values = steps[good], values[good]
        self.points += len(steps)
        steps, values = np.append(self._rest[0], steps), np.append(self._rest[1], values)
        whole = len(steps) // self._every * self._every
        self._rest = (steps[whole:], values[whole:])
        means = tuple(kept[:whole].reshape(-1, self._every).mean(axis=1) for kept in (steps, values))
        self._kept.append((means[0], means[1]))
        self._size += len(means[0])
        if self._size > self.limit:
            self._halve()

    def _halve(self) -> None:
        steps, values = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
        while len(steps) > self.limit:
            if len(steps) % 2:  # the odd one waits for its neighbour
                repeat = self._every
                self._rest = (
                    np.append(np.full(repeat, steps[-1]), self._rest[0]),
                    np.append(np.full(repeat, values[-1]), self._rest[1]),
                )
                steps, values = steps[:-1], values[:-1]
            steps, values = (kept.reshape(-1, 2).mean(axis=1) for kept in (steps, values))
            self._every *= 2
        self._kept, self._size = [(steps, values)], len(steps)

    def result(self) -> tuple[Array, Array]:
        """Steps and values, averaged where the series was too long."""
        parts = [*self._kept]
        if len(self._rest[0]):
            parts.append((self._rest[0].mean(keepdims=True), self._rest[1].mean(keepdims=True)))
        if not parts:
            return np.empty(0), np.empty(0)
        steps, values = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return steps, values


@dataclass(frozen=True, kw_only=True)
class Log:
    """A log that was opened."""

    names: Sequence[str]
    """All numeric columns, tags or keys, in the order of the file."""
    read: Callable[[str, Sequence[str]], list[Series]]
    """The series of the given names, by the given step. It can be called once: a table is parsed while it is read."""
    has_header: bool = True
    own_steps: bool = False
    """Whether every series has its own steps (TensorBoard), so that no column has to be found for them."""


def number(value: Any) -> float:
    """A JSON or CSV field as a float; NaN if it is not a number.

    >>> number("1e-3"), number(True), number(None), number("n/a")
    (0.001, nan, nan, nan)
    """
    if isinstance(value, bool) or value is None:
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")
