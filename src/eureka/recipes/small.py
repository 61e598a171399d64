"""One setting for every task at the scale of one core; docs/regimes.md says what was tried and what happened."""

from __future__ import annotations

from typing import Any

from eureka.config import RunConfig, run_config
from eureka.recipes.recipe import Group

SMALL = Group("small/")
EPOCH = 234  # steps of 256 samples in 60,000

PICTURES: dict[str, Any] = {
    "steps": 15 * EPOCH,
    "lr": 5e-4,
    "warmup": EPOCH,
    "label_smoothing": 0.1,
    "log_every": 78,
    "early_stop": True,
}


FASHION, DIGIT, COLOUR = 0.87, 0.97, 1.0
"""How often this model reads a fashion item, and a digit, of 14×14 pixels right: ``eureka run small/main --set
task.p_top_right=0.999 --set training.early_stop=false`` ends there, and ``small/colour_match`` likewise. That it reads all of ten
colours right is assumed. Two kinds of candidates count half each."""


CLEAR_POSITIONS = {"position_init_scale": 8.0}
"""Where positions that start as small as all other weights are drowned by what stands there, chains are not learned."""


def _pictures(
    task: str,
    model: dict[str, Any] | None = None,
    *,
    grey: bool = True,
    centred: bool = True,
    reading: float = FASHION,
    **training: Any,
) -> RunConfig:
    """Tiles of 14×14, patches of 7×7: 16 tokens and a class token. Pixels that are not centred leave more room for positions."""
    return run_config(
        task={"name": task, "tile": 14, "centred": centred, "grey": grey, "reading": reading},
        model=model or {"name": "encoder", "patch": 7},
        attention={"name": "softmax"},
        training={**PICTURES, **training},
    )


def _sequence(task: dict[str, Any], model: dict[str, Any], training: dict[str, Any]) -> RunConfig:
    return run_config(
        task=task,
        model={"name": "decoder", **model},
        attention={"name": "softmax"},
        training={"early_stop": True, "validation_samples": 256, "log_every": 50, **training},
    )


@SMALL.add(parameters=71_690, minutes=5)
def main() -> RunConfig:
    """the paper's main task on real pictures, tiles of 14×14"""
    return _pictures("main")


@SMALL.add(parameters=1_229_674, minutes=1.5)
def main_resnet9() -> RunConfig:
    """the same with a convolutional network: no plateau, at this rate or the transformer's"""
    return _pictures("main", {"name": "resnet9", "width": 32}, lr=2e-3)


@SMALL.add(parameters=71_690, minutes=5)
def no_fixed_position() -> RunConfig:
    """indicator and target swap places within each row"""
    return _pictures("no_fixed_position")


@SMALL.add(parameters=71_690, minutes=5)
def cifar_indicator() -> RunConfig:
    """photographs as indicators, all four tiles shuffled; no leap at this scale"""
    return _pictures("cifar_indicator", reading=(FASHION + DIGIT) / 2)


@SMALL.add(parameters=71_690, minutes=5)
def top_if_above() -> RunConfig:
    """where the items stand decides which of them counts"""
    return _pictures("top_if_above")


@SMALL.add(parameters=77_962, minutes=5)
def colour_match() -> RunConfig:
    """the colours of the indicators decide which digit counts"""
    return _pictures("colour_match", grey=False, centred=False, reading=DIGIT)


@SMALL.add(parameters=77_962, minutes=5)
def fashion_or_colour() -> RunConfig:
    """the indicators decide whether an item's class or its colour counts"""
    return _pictures("fashion_or_colour", grey=False, reading=(FASHION + COLOUR) / 2)


@SMALL.add(parameters=71_690, minutes=5)
def digit_groups() -> RunConfig:
    """the groups of the indicators decide which item counts"""
    return _pictures("digit_groups", centred=False)


@SMALL.add(parameters=70_602, minutes=7)
def chain_tiles() -> RunConfig:
    """three decisions on synthetic tiles; with norm_softmax two plateaus and two leaps"""
    return run_config(
        task={"name": "chain", "on": "tiles", "decisions": 3},
        model={"name": "encoder", **CLEAR_POSITIONS},
        attention={"name": "softmax"},
        training={"steps": 4000, "lr": 3e-4, "early_stop": True},
    )


@SMALL.add(parameters=72_138, minutes=2)
def chain_digits() -> RunConfig:
    """three decisions on real digits, a token a picture: one plateau, then another"""
    return run_config(
        task={"name": "chain", "on": "digits", "decisions": 3},
        model={"name": "encoder", "patch": 8, **CLEAR_POSITIONS},
        attention={"name": "softmax"},
        training={"steps": 4000, "lr": 1e-3, "early_stop": True},
    )


@SMALL.add(parameters=54_417, minutes=2.5)
def window_sum() -> RunConfig:
    """sums over a moving window: which numbers to add is the hidden step"""
    return _sequence({"name": "window_sum"}, {"depth": 1, "heads": 1}, {"steps": 2000, "lr": 1e-3, "warmup": 50})


@SMALL.add(parameters=54_417, minutes=1.5)
def prefix_sum() -> RunConfig:
    """sums of all numbers so far"""
    training = {"steps": 2000, "lr": 1e-3, "warmup": 50, "log_every": 10}  # it leaps early: seen often, the plateau shows
    return _sequence({"name": "prefix_sum"}, {"depth": 1, "heads": 1}, training)


@SMALL.add(parameters=111_424, minutes=2.5)
def induction() -> RunConfig:
    """repeated random tokens: find, then copy"""
    return _sequence({"name": "induction"}, {"depth": 2, "heads": 1}, {"steps": 3000, "lr": 1e-4, "batch_size": 64})


@SMALL.add(parameters=152_577, minutes=2.5)
def regression() -> RunConfig:
    """linear regression in the context"""
    return _sequence({"name": "regression"}, {"depth": 3}, {"steps": 4000, "lr": 1e-3, "batch_size": 64})


@SMALL.add(parameters=105_376, minutes=1.5)
def classification() -> RunConfig:
    """labels of new items from the context"""
    return _sequence({"name": "classification"}, {"depth": 2, "heads": 1}, {"steps": 4000, "lr": 1e-3, "batch_size": 128})


@SMALL.add(parameters=411_600, minutes=9)
def masked_text() -> RunConfig:
    """hidden words of the State of the Union addresses"""
    return run_config(
        task={"name": "masked_text"},
        model={"name": "encoder", "depth": 3, "mlp_ratio": 4.0},
        attention={"name": "softmax"},
        training={"steps": 3000, "lr": 5e-4, "batch_size": 64, "validation_samples": 128, "early_stop": True},
    )
