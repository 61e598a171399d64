"""Colours and marks of the fixes: told apart on light and on dark ground, also by people who are colour-blind."""

from __future__ import annotations

from dataclasses import dataclass

from eureka.report.markup import Html


@dataclass(frozen=True)
class Mark:
    """How the curves of one fix look. The symbol says it again to those who cannot see the colour."""

    light: str
    dark: str
    symbol: str


BASELINE = Mark("#5d6571", "#8d95a1", "circle")
"""Plain softmax is grey: it is what the others are compared with."""

MARKS = (
    Mark("#016fc0", "#49a4e7", "diamond"),
    Mark("#c25c00", "#ff8b4a", "square"),
    Mark("#00a478", "#1fda9e", "triangle-up"),
    Mark("#891f83", "#e7b6e2", "pentagon"),
    Mark("#c98c00", "#f2d14e", "star"),
    Mark("#4b2fa8", "#8f7bf0", "hexagon"),
)


def marks(fixes: list[str]) -> list[Mark]:
    """A mark for each, in order; after the last they come round again."""
    others = (MARKS[i % len(MARKS)] for i in range(len(fixes)))
    baseline_left = True
    chosen = []
    for fix in fixes:
        first_baseline = fix == "softmax" and baseline_left
        chosen.append(BASELINE if first_baseline else next(others))
        baseline_left = baseline_left and not first_baseline
    return chosen


def variables(chosen: list[Mark]) -> tuple[Html, Html]:
    """The colours as CSS variables ``--fix-0``, ``--fix-1``, …, for light and for dark ground."""
    light = "".join(f"--fix-{i}:{mark.light};" for i, mark in enumerate(chosen))
    dark = "".join(f"--fix-{i}:{mark.dark};" for i, mark in enumerate(chosen))
    return Html(light), Html(dark)
