"""Noisy tiles: what is shown is what the chain drew."""

from __future__ import annotations

import pytest
import torch
from torch import Generator

from eureka.errors import RequestError
from eureka.tasks.registry import TASKS
from eureka.tasks.tiles import Tiles


def test_each_tile_is_nearest_to_the_prototype_of_its_class() -> None:
    task = Tiles(decisions=3)
    batch = task.sample(200, Generator().manual_seed(0))
    drawn = task.rule.draw(200, Generator().manual_seed(0))
    shown = batch.inputs.reshape(200 * 8, -1)
    nearest = torch.cdist(shown, task.prototypes.flatten(1)).argmin(dim=1)
    assert torch.equal(nearest, drawn.tiles.flatten())
    assert torch.equal(batch.labels, drawn.labels)


def test_without_noise_a_tile_is_its_prototype() -> None:
    task = Tiles(noise=0.0)
    batch = task.sample(8, Generator().manual_seed(0))
    top_right = batch.inputs.reshape(8, 4, 4, 16)[:, 1]
    assert torch.equal(top_right, task.prototypes[batch.steps["target_1"] + 2])


def test_two_worlds_have_other_prototypes_and_one_world_always_the_same() -> None:
    assert torch.equal(Tiles(world=3).prototypes, Tiles(world=3).prototypes)
    assert not torch.equal(Tiles(world=3).prototypes, Tiles(world=4).prototypes)


def test_the_same_generator_state_gives_the_same_batch() -> None:
    first, again = (Tiles().sample(16, Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.labels, again.labels)


def test_levels_are_the_chain_s() -> None:
    task = Tiles(p_same=0.4, target_classes=5)
    assert task.levels(0.1) == task.rule.levels(0.1)
    assert task.shortcut_loss(0.1) == task.levels(0.1)[0].loss
    assert task.floor_loss() == pytest.approx(0.0)


def test_an_unknown_task_and_a_wrong_setting_are_told_kindly() -> None:
    with pytest.raises(RequestError, match="did you mean 'tiles'"):
        TASKS.entry("tyles")
    with pytest.raises(RequestError, match=r"p_same = 1\.5"):
        TASKS.choose("tiles", {"p_same": 1.5})
