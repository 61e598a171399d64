"""The independent re-run of the main task (QDSFormer, NeurIPS 2025): 8 tokens of 14×28 pixels, mean read-out, 100 epochs.

What it does not tell (depth, warm-up, smoothing) is taken from the paper.
"""

from __future__ import annotations

from typing import Any

from eureka.config import RunConfig, run_config
from eureka.recipes.paper import EPOCH, TRAINING
from eureka.recipes.recipe import Group

QDS = Group("qds/")


def _qds(model: dict[str, Any], training: dict[str, Any]) -> RunConfig:
    return run_config(
        task={"name": "main"},
        model={"name": "vit", "patch": (14, 28), "readout": "mean", **model},
        attention={"name": "softmax"},
        training={**TRAINING, "steps": 100 * EPOCH, "lr": 5e-4, **training},
    )


@QDS.add(parameters=3_990_794, minutes=None)
def full() -> RunConfig:
    """the main task in 8 tokens at full width, 256"""
    return _qds({}, {})


@QDS.add(parameters=143_178, minutes=5)
def narrow() -> RunConfig:
    """the main task in 8 tokens at width 64 and depth 2"""
    narrow = {"dim": 64, "depth": 2, "heads": 2, "drop_path": 0.0}
    return _qds(narrow, {"batch_size": 256, "validation_samples": 2048, "steps": 40 * EPOCH, "warmup": 2 * EPOCH})
