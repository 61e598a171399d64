"""Colours and marks of the fixes: told apart on light and on dark ground, also by people who are colour-blind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Mark:
    """How the curves of one fix look. The symbol tells fixes apart where the colour does not."""

    light: str
    dark: str
    symbol: str


BASELINE = Mark("#5d6571", "#8d95a1", "circle")
"""Plain softmax is grey: the others are compared with it."""

MARKS = (
    Mark("#016fc0", "#49a4e7", "diamond"),
    Mark("#c25c00", "#ff8b4a", "square"),
    Mark("#00a478", "#1fda9e", "triangle-up"),
    Mark("#891f83", "#e7b6e2", "pentagon"),
    Mark("#c98c00", "#f2d14e", "star"),
    Mark("#4b2fa8", "#8f7bf0", "hexagon"),
)


def marks(fixes: Sequence[str]) -> list[Mark]:
    """A mark for each, in order; after the last mark the first is used again."""
    others = (MARKS[i % len(MARKS)] for i in range(len(fixes)))
    baseline = next((i for i, fix in enumerate(fixes) if fix == "softmax"), None)
    return [BASELINE if i == baseline else next(others) for i in range(len(fixes))]
