"""The grid of real digits: pictures in their places, and none of them on both sides of the split."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from eureka.data.images import load_digits
from eureka.tasks.digits import MEAN, SCALE, Digits
from eureka.tasks.task import Split


@pytest.fixture(scope="module")
def task() -> Digits:
    return Digits()


def tiles_of(picture: Tensor) -> list[Tensor]:
    return [picture[:8, :8], picture[:8, 8:], picture[8:, :8], picture[8:, 8:]]


def key(tile: Tensor) -> bytes:
    return (tile * SCALE + MEAN).mul(16).round().to(torch.uint8).numpy().tobytes()


@pytest.fixture(scope="module")
def catalogue() -> dict[bytes, set[int]]:
    """Which classes each picture has been given; a few pictures occur twice."""
    digits = load_digits()
    classes: dict[bytes, set[int]] = {}
    for pixels, label in zip(digits.pixels, digits.labels, strict=True):
        classes.setdefault(np.round(pixels * 16).astype(np.uint8).tobytes(), set()).add(int(label))
    return classes


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_label_follows_from_the_pictures_themselves(task: Digits, catalogue: dict[bytes, set[int]], split: Split) -> None:
    batch = task.sample(10_000, Generator().manual_seed(0), split)
    assert batch.inputs.shape == (10_000, 1, 16, 16)
    for picture, label in zip(batch.inputs[:, 0], batch.labels.tolist(), strict=True):
        (first,), (top_right,), (bottom_left,), (second,) = (catalogue[key(tile)] for tile in tiles_of(picture))
        assert {first, second} <= {1, 2}
        assert label == (top_right if first == second else bottom_left)


def test_no_picture_is_shown_in_both_training_and_validation(task: Digits) -> None:
    shown = {}
    for split in ("train", "validation"):
        batch = task.sample(3_000, Generator().manual_seed(1), split)
        shown[split] = {key(tile) for picture in batch.inputs[:, 0] for tile in tiles_of(picture)}
    assert len(shown["train"]) > 1_300
    assert len(shown["validation"]) > 430
    assert not shown["train"] & shown["validation"]


def test_more_decisions_make_the_picture_wider_by_one_block_each(catalogue: dict[bytes, set[int]]) -> None:
    task = Digits(decisions=3)
    batch = task.sample(500, Generator().manual_seed(2))
    assert batch.inputs.shape == (500, 1, 16, 32)
    for picture, label in zip(batch.inputs[:, 0], batch.labels.tolist(), strict=True):
        a, right, left, b = (next(iter(catalogue[key(tile)])) for tile in tiles_of(picture[:, :16]))
        c, d, e, f = (next(iter(catalogue[key(tile)])) for tile in tiles_of(picture[:, 16:]))
        same = c == f if a == b else d == e
        assert label == (right if same else left)


def test_pixels_are_centred_and_of_unit_size(task: Digits) -> None:
    inputs = task.sample(2_000, Generator().manual_seed(3)).inputs
    assert abs(inputs.mean().item()) < 0.1
    assert inputs.std().item() == pytest.approx(1.0, abs=0.1)


def test_the_split_holds_out_every_fourth_of_each_class() -> None:
    digits = load_digits()
    train, validation = digits.split(4)
    assert len(train.labels) + len(validation.labels) == len(digits.labels) == 1797
    for label in range(10):
        assert (validation.labels == label).sum() == (digits.labels == label).sum() // 4
