"""What tokens are called is what they show."""

from __future__ import annotations

import torch
from torch import Generator

from eureka.config import run_config
from eureka.data.images import load_digits
from eureka.experiment import build, token_names
from eureka.tasks.digits import HELD_OUT_EVERY, MEAN, SCALE

ANSWERS = {"indicator a": "indicator_1", "indicator b": "indicator_2", "target a": "target_1", "target b": "target_2"}


def named(task: str, patch: int = 8, **settings: object) -> tuple[list[str], object]:
    parts = {"task": {"name": task, **settings}, "model": {"name": "encoder", "patch": patch}}
    built, model = build(run_config(**parts, attention={"name": "softmax"}, training={}))
    names = token_names(built, model)
    assert names is not None
    return names, built


def test_a_token_of_tiles_shows_what_its_name_says() -> None:
    names, task = named("tiles", noise=0.0, decisions=3)
    batch = task.sample(50, Generator().manual_seed(0))  # type: ignore[attr-defined]
    assert len(names) == batch.inputs.shape[1]
    for tile, answer in ANSWERS.items():
        for part in range(4):
            shown = batch.inputs[:, names.index(f"{tile} {part + 1}")]
            classes = batch.steps[answer] + (2 if tile.startswith("target") else 0)
            assert torch.equal(shown, task.prototypes[classes, part])  # type: ignore[attr-defined]


def test_a_patch_of_digits_is_called_by_the_digit_that_it_is_of() -> None:
    names, task = named("digits", decisions=3)
    assert names[:2] + names[4:6] == ["indicator a", "target a", "target b", "indicator b"]
    batch = task.sample(50, Generator().manual_seed(0), "validation")  # type: ignore[attr-defined]
    held_out = load_digits().split(HELD_OUT_EVERY)[1]
    known = ((torch.from_numpy(held_out.pixels) - MEAN) / SCALE).flatten(1)
    patches = batch.inputs.reshape(50, 2, 8, 4, 8).permute(0, 1, 3, 2, 4).reshape(50, 8, 64)  # row by row
    for tile, answer in ANSWERS.items():
        seen = torch.cdist(patches[:, names.index(tile)], known).argmin(dim=1)
        digits = torch.from_numpy(held_out.labels)[seen]
        assert torch.equal(digits, batch.steps[answer] + (1 if tile.startswith("indicator") else 0))


def test_smaller_patches_are_called_by_the_tile_they_lie_in() -> None:
    names, _ = named("digits", patch=4)
    assert [names[4 * row : 4 * row + 4] for row in (0, 3)] == [
        ["indicator a"] * 2 + ["target a"] * 2,
        ["target b"] * 2 + ["indicator b"] * 2,
    ]
    assert len(names) == 16
