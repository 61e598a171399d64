"""Hoffmann et al. 2024 as they ran it: needs a graphics card; here it runs for a few steps in a test.

An epoch of theirs is 117 steps of 512 samples. The rates are those of their published recipes, one for each method.
"""

from __future__ import annotations

from typing import Any

from eureka.config import RunConfig, run_config
from eureka.recipes.recipe import Group

PAPER = Group("paper/")
EPOCH = 117
PARAMETERS, RESNET9_PARAMETERS, RESNET18_PARAMETERS = 3_750_666, 4_910_922, 11_181_642

TRAINING: dict[str, Any] = {
    "steps": 300 * EPOCH,
    "batch_size": 512,
    "warmup": 5 * EPOCH,
    "schedule": "cosine",
    "final_lr": 1e-6,
    "weight_decay": 0.05,
    "label_smoothing": 0.1,
    "log_every": EPOCH,
    "validation_samples": 10_000,
    "checkpoint_every": 10 * EPOCH,
}


def _paper(task: str, *, attention: str = "softmax", lr: float = 5e-4, model: str = "vit") -> RunConfig:
    return run_config(task={"name": task}, model={"name": model}, attention={"name": attention}, training={**TRAINING, "lr": lr})


@PAPER.add(parameters=PARAMETERS, minutes=None)
def main() -> RunConfig:
    """the main task, the ViT of 3.75 M parameters, plain softmax at 5e-4"""
    return _paper("main")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def main_heat_treatment() -> RunConfig:
    """the main task with Heat Treatment at its published rate, 1e-4"""
    return _paper("main", attention="heat_treatment", lr=1e-4)


@PAPER.add(parameters=PARAMETERS, minutes=None)
def main_norm_softmax_var() -> RunConfig:
    """the main task with NormSoftmax (by variance, as published) at its published rate, 1e-5"""
    return _paper("main", attention="norm_softmax_var", lr=1e-5)


@PAPER.add(parameters=RESNET9_PARAMETERS, minutes=None)
def main_resnet9() -> RunConfig:
    """the main task with a convolutional network of one block a stage"""
    return _paper("main", model="resnet9")


@PAPER.add(parameters=RESNET18_PARAMETERS, minutes=None)
def main_resnet18() -> RunConfig:
    """the main task with a convolutional network of two blocks a stage"""
    return _paper("main", model="resnet18")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def no_fixed_position() -> RunConfig:
    """indicator and target swap places within each row"""
    return _paper("no_fixed_position")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def cifar_indicator() -> RunConfig:
    """photographs as indicators, all four tiles shuffled"""
    return _paper("cifar_indicator")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def top_if_above() -> RunConfig:
    """where the items stand decides which of them counts"""
    return _paper("top_if_above")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def colour_match() -> RunConfig:
    """the colours of the indicators decide which digit counts"""
    return _paper("colour_match")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def fashion_or_colour() -> RunConfig:
    """the indicators decide whether an item's class or its colour counts"""
    return _paper("fashion_or_colour")


@PAPER.add(parameters=PARAMETERS, minutes=None)
def digit_groups() -> RunConfig:
    """the groups of the indicators decide which item counts"""
    return _paper("digit_groups")
