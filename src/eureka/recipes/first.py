"""What to begin with: nothing to download, a minute a run."""

from __future__ import annotations

from eureka.config import RunConfig, run_config
from eureka.recipes.recipe import Group

FIRST = Group("")


@FIRST.add(parameters=69_578, minutes=1)
def tiles() -> RunConfig:
    """two-step task on synthetic noisy tiles; a minute a run on one core"""
    return run_config(
        task={"name": "tiles"},
        model={"name": "encoder"},
        attention={"name": "softmax"},
        training={"steps": 1200, "lr": 3e-4, "early_stop": True},
    )


@FIRST.add(parameters=71_882, minutes=0.5)
def digits() -> RunConfig:
    """two-step task on real handwritten digits, a token a picture; half a minute a run on one core"""
    return run_config(
        task={"name": "digits"},
        model={"name": "encoder", "patch": 8},
        attention={"name": "softmax"},
        training={"steps": 2000, "lr": 2e-4, "early_stop": True},
    )
