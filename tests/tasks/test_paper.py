"""The seven picture tasks: every label read back from the finished picture, one sample at a time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from eureka.data.catalogue import CATALOGUE
from eureka.data.images import load_images
from eureka.data.store import located
from eureka.errors import RequestError
from eureka.tasks.pictures import Album, paint, shelf, shrunk
from eureka.tasks.registry import TASKS
from eureka.tasks.task import Task

pytestmark = pytest.mark.usefixtures("pictures")

COLOURS = {
    "white": (1, 1, 1), "red": (1, 0, 0), "orange": (1, 0.5, 0), "yellow": (1, 1, 0), "green": (0, 1, 0),
    "spring": (0, 1, 0.5), "cyan": (0, 1, 1), "blue": (0, 0, 1), "violet": (0.5, 0, 1), "magenta": (1, 0, 1),
}  # fmt: skip
KINDS = ("digit", "fashion", "photo")


class Tile(NamedTuple):
    """What one tile shows."""

    kind: str
    number: int
    colour: str
    picture: int


BLANK = Tile("blank", 0, "", 0)


def read_tiles(pictures: Tensor) -> list[list[Tile]]:
    """The four tiles of each picture, from left to right and top to bottom."""
    pixels = pictures.view(-1, 3, 2, 28, 2, 28)[:, :, :, 14, :, :3]  # (n, 3, row, column, pixel)
    cells = pixels.permute(0, 2, 3, 4, 1).flatten(1, 2).double().numpy()  # (n, cell, pixel, colour)
    names, palette = list(COLOURS), np.array(list(COLOURS.values()), dtype=float)
    return [[read_tile(cell, names, palette) for cell in sample] for sample in cells]


def read_tile(cell: np.ndarray, names: list[str], palette: np.ndarray) -> Tile:
    colour = cell[0]
    if not colour.any():
        return BLANK
    channel = colour.argmax()
    code, picture = (round(255 * value) for value in cell[1:, channel] / colour[channel])
    kind, number = divmod(code // 8 - 1, 10)
    return Tile(KINDS[kind], number, names[((palette - colour) ** 2).sum(1).argmin()], picture)


def main(tiles: list[Tile]) -> int:
    first, right, left, second = tiles
    assert {first.number, second.number} <= {1, 2}
    assert {first.colour, second.colour} <= {"red", "blue"}
    assert [tile.kind for tile in tiles] == ["digit", "fashion", "fashion", "digit"]
    assert right.colour == left.colour == "white"
    return right.number if first.number == second.number else left.number


def no_fixed_position(tiles: list[Tile]) -> int:
    (first, upper), (second, lower) = (sorted(row, key=lambda tile: tile.kind) for row in (tiles[:2], tiles[2:]))
    return main([first, upper, lower, second])


def cifar_indicator(tiles: list[Tile]) -> int:
    digit, fashion, first, second = sorted(tiles, key=lambda tile: tile.kind)
    assert [tile.kind for tile in (digit, fashion, first, second)] == ["digit", "fashion", "photo", "photo"]
    return fashion.number if first.number == second.number else digit.number


def top_if_above(tiles: list[Tile]) -> int:
    upper, lower = ([i for i, tile in enumerate(row) if tile != BLANK] for row in (tiles[:2], tiles[2:]))
    assert len(upper) == len(lower) == 1
    return tiles[upper[0]].number if upper == lower else tiles[2 + lower[0]].number


def colour_match(tiles: list[Tile]) -> int:
    first, right, left, second = tiles
    assert {tile.kind for tile in tiles} == {"digit"}
    assert right.colour == left.colour == "white"
    warm = {"red": True, "yellow": True, "blue": False, "cyan": False}
    return right.number if warm[first.colour] == warm[second.colour] else left.number


def fashion_or_colour(tiles: list[Tile]) -> int:
    first, item, blank, second = tiles
    assert blank == BLANK
    order = ["white", "red", "orange", "yellow", "green", "spring", "cyan", "blue", "violet", "magenta"]
    return item.number if first.number == second.number else order.index(item.colour)


def digit_groups(tiles: list[Tile]) -> int:
    first, right, left, second = tiles
    assert {first.number, second.number} <= {1, 2, 3, 4}
    return right.number if (first.number <= 2) == (second.number <= 2) else left.number


RULES: dict[str, Callable[[list[Tile]], int]] = {
    rule.__name__: rule
    for rule in (main, no_fixed_position, cifar_indicator, top_if_above, colour_match, fashion_or_colour, digit_groups)
}


@pytest.mark.parametrize("name", RULES)
def test_ten_thousand_labels_follow_from_what_the_picture_shows(name: str) -> None:
    task: Task = TASKS.build(name)
    generator = Generator().manual_seed(0)
    for split, samples in (("train", 9_000), ("validation", 1_000)):
        for _ in range(samples // 1_000):
            batch = task.sample(1_000, generator, split)  # type: ignore[arg-type]
            assert batch.inputs.shape == (1_000, 3, 56, 56)
            shown = read_tiles(batch.inputs)
            assert [RULES[name](tiles) for tiles in shown] == batch.labels.tolist()
            parities = {tile.picture % 2 for tiles in shown for tile in tiles if tile != BLANK}
            assert parities == {int(split == "validation")}  # no picture is on both sides


@pytest.mark.parametrize("name", RULES)
def test_classes_and_selector_are_balanced_and_the_knob_turns(name: str) -> None:
    batch = TASKS.build(name, {"tile": 7, "p_top_right": 0.3}).sample(20_000, Generator().manual_seed(1))
    shares = batch.labels.bincount(minlength=10) / 20_000
    assert (shares - 0.1).abs().max() < 0.0085  # four standard errors
    assert batch.steps["selector"].float().mean().item() == pytest.approx(0.3, abs=0.013)
    for target in ("target_1", "target_2"):
        assert (batch.steps[target].bincount(minlength=10) / 20_000 - 0.1).abs().max() < 0.0085


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_shortcut_level_is_what_a_reader_of_both_candidates_reaches(name: str, smoothing: float) -> None:
    p = 0.4
    task = TASKS.build(name, {"tile": 7, "p_top_right": p})
    batch = task.sample(20_000, Generator().manual_seed(2))
    belief = torch.zeros(20_000, 10)
    belief.scatter_add_(1, batch.steps["target_1"][:, None], torch.full((20_000, 1), p))
    belief.scatter_add_(1, batch.steps["target_2"][:, None], torch.full((20_000, 1), 1 - p))
    logits = ((1 - smoothing) * belief + smoothing / 10).clamp_min(1e-30).log()
    assert task.loss(logits, batch, smoothing).item() == pytest.approx(task.shortcut_loss(smoothing), abs=0.015)
    assert task.accuracy(logits, batch).item() == pytest.approx(task.shortcut_accuracy, abs=0.014)


def test_the_plateau_of_the_main_task_is_the_paper_s() -> None:
    task = TASKS.build("main")
    assert task.shortcut_accuracy == pytest.approx(0.55)
    assert task.shortcut_loss() == pytest.approx(0.9 * math.log(2))
    assert task.shortcut_loss(0.1) == pytest.approx(1.025, abs=1e-3)
    assert task.floor_loss(0.1) == pytest.approx(0.500, abs=1e-3)


@pytest.mark.parametrize("name", RULES)
def test_the_first_step_alone_is_the_same_pictures_with_the_selector_for_a_label(name: str) -> None:
    whole, first = (TASKS.build(name, {"tile": 7, "p_top_right": 0.3, "answer": answer}) for answer in ("label", "selector"))
    a, b = (task.sample(2000, Generator().manual_seed(3)) for task in (whole, first))
    assert torch.equal(a.inputs, b.inputs)
    assert torch.equal(b.labels, a.steps["selector"])
    chance, floor = first.levels()
    assert (chance.accuracy, floor.accuracy, floor.loss) == (0.7, 1.0, 0.0)
    assert float((b.labels == 0).float().mean()) == pytest.approx(chance.accuracy, abs=0.04)
    assert chance.loss == pytest.approx(-0.3 * math.log(0.3) - 0.7 * math.log(0.7))


@pytest.mark.parametrize("name", RULES)
def test_the_same_generator_state_gives_the_same_pictures(name: str) -> None:
    task = TASKS.build(name, {"tile": 14})
    first, again = (task.sample(8, Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.inputs, task.sample(8, Generator().manual_seed(4)).inputs)


def test_pixels_lie_between_zero_and_one_and_can_be_centred() -> None:
    plain = TASKS.build("main").sample(64, Generator().manual_seed(5)).inputs
    centred = TASKS.build("main", {"centred": True}).sample(64, Generator().manual_seed(5)).inputs
    assert plain.min() == 0
    assert 0.9 < plain.max() <= 1
    torch.testing.assert_close(centred, (plain - 0.15) / 0.3)


@pytest.mark.parametrize("name", ["main", "no_fixed_position", "cifar_indicator", "top_if_above", "digit_groups"])
def test_grey_pictures_show_the_same_without_colour(name: str) -> None:
    coloured = TASKS.build(name).sample(64, Generator().manual_seed(5))
    grey = TASKS.build(name, {"grey": True}).sample(64, Generator().manual_seed(5))
    assert grey.inputs.shape == (64, 1, 56, 56)
    assert torch.equal(grey.labels, coloured.labels)
    shown, expected = (read_tiles(pictures) for pictures in (grey.inputs.expand(-1, 3, -1, -1), coloured.inputs))
    assert [[tile[:2] for tile in tiles] for tiles in shown] == [[tile[:2] for tile in tiles] for tiles in expected]
    assert {tile.colour for tiles in shown for tile in tiles} <= {"white", ""}


@pytest.mark.parametrize("name", ["colour_match", "fashion_or_colour"])
def test_a_task_about_colours_cannot_do_without(name: str) -> None:
    with pytest.raises(RequestError, match="takes away the colours"):
        TASKS.build(name, {"grey": True})


def test_colour_noise_has_the_paper_s_size() -> None:
    tiles = TASKS.build("main").sample(4_000, Generator().manual_seed(6)).inputs[:, :, 14, 28]  # the white pixel, top-right
    below = 1 - tiles[tiles < 1]
    assert (tiles == 1).float().mean().item() == pytest.approx(0.5, abs=0.02)  # what would be brighter than white is white
    assert below.square().mean().sqrt().item() == pytest.approx(0.05, rel=0.04)


def test_painting_puts_each_tile_in_its_cell() -> None:
    generator = Generator().manual_seed(7)
    tiles = torch.randint(256, (5, 4, 1, 7, 7), generator=generator, dtype=torch.uint8)
    colours = torch.rand(5, 4, 3, generator=generator)
    album = Album(tiles.view(20, 1, 7, 7), torch.zeros(20, dtype=torch.long))
    painted = paint(album.mosaic(torch.arange(20).view(5, 2, 2)), colours)
    for sample in range(5):
        for cell in range(4):
            y, x = divmod(cell, 2)
            for channel in range(3):
                expected = tiles[sample, cell, 0].float() / 255 * colours[sample, cell, channel]
                shown = painted[sample, channel, 7 * y : 7 * y + 7, 7 * x : 7 * x + 7]
                torch.testing.assert_close(shown, expected)


def test_a_mosaic_has_every_channel_of_every_picture_in_its_place() -> None:
    generator = Generator().manual_seed(9)
    pictures = torch.randint(256, (11, 3, 4, 5), generator=generator, dtype=torch.uint8)
    chosen = torch.randint(11, (6, 2, 3), generator=generator)
    found = Album(pictures, torch.zeros(11, dtype=torch.long)).mosaic(chosen)
    assert found.shape == (6, 3, 2, 4, 15)
    for sample, row, column in itertools.product(range(6), range(2), range(3)):
        assert torch.equal(found[sample, :, row, :, 5 * column : 5 * column + 5], pictures[chosen[sample, row, column]])


@pytest.mark.parametrize("tile", [7, 14])
def test_smaller_tiles_are_averages(tile: int) -> None:
    pictures = torch.randint(256, (3, 1, 28, 28), generator=Generator().manual_seed(8), dtype=torch.uint8)
    factor = 28 // tile
    small = shrunk(pictures, tile)
    assert small.shape == (3, 1, tile, tile)
    for y in range(tile):
        block = pictures[:, 0, factor * y : factor * (y + 1), :factor].float().mean(dim=(1, 2))
        assert (small[:, 0, y, 0].float() - block).abs().max() <= 0.5
    assert torch.equal(shrunk(pictures, 28), pictures)


def test_a_tile_size_that_is_not_offered_is_told() -> None:
    with pytest.raises(RequestError, match="tile = 10"):
        TASKS.choose("main", {"tile": 10})


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_real_training_and_validation_pictures_are_disjoint(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if located(CATALOGUE[name]) is None:
        pytest.skip(f"{name} is not in the cache; `eureka data fetch {name}` brings it")
    train, test = ({picture.tobytes() for picture in load_images(name, part).pixels} for part in ("train", "test"))
    assert len(train) > 59_900
    assert not train & test


def test_the_real_shelf_holds_every_class(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mnist", "fashion_mnist", "cifar10"):
        if located(CATALOGUE[name]) is None:
            pytest.skip(f"{name} is not in the cache; `eureka data fetch {name}` brings it")
    monkeypatch.setattr("eureka.tasks.pictures.load_images", load_images)
    album = shelf("test", 14, photos=True)
    assert album.counts[:10].sum() == 10_000
    assert album.counts[10:20].tolist() == [1_000] * 10
    assert album.counts[20:].tolist() == [1_000, 1_000, 1]
    assert album.pictures.shape[1:] == (3, 14, 14)
