"""Named configs, each a function: what a name means can be read here and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eureka.errors import UnknownNameError
from eureka.experiment import RunConfig, run_config


def tiles() -> RunConfig:
    """two-step task on synthetic noisy tiles; a minute a run on one core"""
    return run_config(
        task={"name": "tiles"},
        model={"name": "encoder"},
        attention={"name": "softmax"},
        training={"steps": 1200, "lr": 3e-4, "early_stop": True},
    )


def digits() -> RunConfig:
    """two-step task on real handwritten digits, a token a picture; half a minute a run on one core"""
    return run_config(
        task={"name": "digits"},
        model={"name": "encoder", "patch": 8},
        attention={"name": "softmax"},
        training={"steps": 2000, "lr": 2e-4, "early_stop": True},
    )


@dataclass(frozen=True)
class Recipe:
    """A name, one line, and the function that makes the config."""

    name: str
    make: Callable[[], RunConfig]

    @property
    def summary(self) -> str:
        return (self.make.__doc__ or "").strip()


RECIPES = {function.__name__: Recipe(function.__name__, function) for function in (tiles, digits)}


def recipe(name: str) -> RunConfig:
    """The config of a recipe."""
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name].make()
