"""Named configs, each a function: what a name means can be read here and nowhere else.

tiles, digits   nothing to download, a minute a run
small/*         one setting for every task at the scale of one core
hf/*            Hugging Face's own models, patched; needs transformers
qds/*           the independent re-run of the paper's main task, in 8 tokens
paper/*         as the paper ran it; needs a graphics card
"""

from __future__ import annotations

from eureka.config import RunConfig
from eureka.errors import UnknownNameError
from eureka.recipes.first import FIRST
from eureka.recipes.hf import HF
from eureka.recipes.paper import PAPER
from eureka.recipes.qds import QDS
from eureka.recipes.recipe import Recipe
from eureka.recipes.small import SMALL

__all__ = ["RECIPES", "Recipe", "recipe"]

RECIPES: dict[str, Recipe] = FIRST.recipes | SMALL.recipes | HF.recipes | QDS.recipes | PAPER.recipes


def recipe(name: str) -> RunConfig:
    """The config of a recipe.

    >>> recipe("tiles").but({"training.lr": 1e-3}).training.lr
    0.001

    Args:
        name: one that `eureka recipes` lists
    """
    if name not in RECIPES:
        raise UnknownNameError("recipe", name, RECIPES)
    return RECIPES[name].make()
