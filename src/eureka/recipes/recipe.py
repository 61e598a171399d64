"""A recipe: a name, one line, what it costs, and the function that makes the config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from eureka.config import RunConfig

Make = Callable[[], RunConfig]


@dataclass(frozen=True)
class Recipe:
    """A named config."""

    name: str
    make: Make
    parameters: int
    """of the model; recorded, because counting them needs the data, and tested to be right"""
    minutes: float | None
    """roughly, of one run on one core (docs/regimes.md has what was measured); None where it needs a graphics card"""

    @property
    def summary(self) -> str:
        return (self.make.__doc__ or "").strip()

    @cached_property
    def task(self) -> str:
        return self.make().task.name


@dataclass(frozen=True)
class Group:
    """Recipes whose names begin alike."""

    prefix: str
    recipes: dict[str, Recipe] = field(default_factory=dict)

    def add(self, *, parameters: int, minutes: float | None) -> Callable[[Make], Make]:
        """Enter a function under its own name."""

        def enter(make: Make) -> Make:
            name = self.prefix + make.__name__
            self.recipes[name] = Recipe(name, make, parameters, minutes)
            return make

        return enter
