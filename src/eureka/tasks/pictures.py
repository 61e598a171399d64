"""The engine of the paper's picture tasks: four tiles in a 2×2 grid, each a picture of some class in some colour.

A task says which classes stand in which cells, in which colours, and what the label is (`compose` → `Scene`); everything else
is here: the shelf of real pictures, tints, placement and painting, all by tensor operations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Generator, Tensor

from eureka.data.images import Images, Part, load_images
from eureka.data.sources import Folder
from eureka.data.store import places
from eureka.errors import RequestError
from eureka.runs import Level
from eureka.tasks.decision_rule import DecisionRule, smoothed_entropy
from eureka.tasks.task import Batch, Split, Task

Tile = Literal[7, 14, 28]
Share = Annotated[float, Field(gt=0, lt=1)]
Chance = Annotated[float, Field(gt=0, le=1)]

DIGIT, FASHION, PHOTO, BLANK = 0, 10, 20, 22  # where each kind of picture begins on the shelf
PHOTO_CLASSES = (1, 2)  # of CIFAR-10: cars and birds
TOP_LEFT, TOP_RIGHT, BOTTOM_LEFT, BOTTOM_RIGHT = range(4)

WHITE, RED, BLUE = (1.0, 1.0, 1.0), (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)
COLOUR_NOISE = 0.05
CENTRE, SCALE = 0.15, 0.3  # of the pixels, rounded, for centred inputs


@dataclass(frozen=True)
class Scene:
    """What stands in each cell, from left to right and top to bottom, and the answers."""

    shown: Tensor
    """(n, 4): a class on the shelf"""
    colours: Tensor
    """(n, 4, 3), before noise"""
    labels: Tensor
    steps: dict[str, Tensor]

    def moved(self, order: Tensor) -> Scene:
        """The same scene with cell i taken from cell order[:, i]."""
        colours = self.colours.gather(1, order[..., None].expand(-1, -1, 3))
        return Scene(self.shown.gather(1, order), colours, self.labels, self.steps)


class PictureTask(Task):
    """Two candidates for the label, and two things to compare that tell which of them it is.

    reading   how often a candidate is read right by the model at hand; nothing but the levels depends on it
    answer    what to train on: the label, or "selector", which is the first step alone: is it the comparison that a model cannot
              learn, or only that it is never told to compare?
    """

    classes = 10
    needs_photos = False
    needs_colour = False

    def __init__(
        self,
        *,
        tile: Tile = 28,
        p_top_right: Share = 0.5,
        centred: bool = False,
        grey: bool = False,
        reading: Chance = 1.0,
        answer: Literal["label", "selector"] = "label",
    ) -> None:
        if grey and self.needs_colour:
            raise RequestError("task.grey=true takes away the colours, and in this task they decide the label.")
        self.p_top_right, self.centred, self.grey, self.reading, self.answer = p_top_right, centred, grey, reading, answer
        self.input_shape = (1 if grey else 3, 2 * tile, 2 * tile)
        self._shelves = {"train": shelf("train", tile, self.needs_photos), "validation": shelf("test", tile, self.needs_photos)}

    @abstractmethod
    def compose(self, n: int, generator: Generator) -> Scene:
        """Draw what is to be shown, and follow the rule."""

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        scene = self.compose(n, generator)
        noise = COLOUR_NOISE * torch.randn(scene.colours.shape, generator=generator)
        shelf = self._shelves[split]
        mosaic = shelf.mosaic(shelf.choose(scene.shown, generator).view(n, 2, 2))
        inputs = sketch(mosaic) if self.grey else paint(mosaic, (scene.colours + noise).clamp(0, 1))
        if self.centred:
            inputs = inputs.sub_(CENTRE).div_(SCALE)
        return Batch(inputs, scene.labels if self.answer == "label" else scene.steps[self.answer], scene.steps)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """What a reader could do: with both candidates known, one of two classes; with the rule, the label.

        A small model on small tiles takes a shirt for a coat, before and after its leap. What it reads right is measured on the
        task without its first step, ``--set task.p_top_right=0.999``; the plateau and the floor of that reader are these.
        """
        if self.answer == "label":
            return DecisionRule(target_classes=self.classes, p_same=self.p_top_right).levels(label_smoothing, self.reading)
        p = self.p_top_right
        guessing, certain = (smoothed_entropy(belief, self.classes, label_smoothing) for belief in ([p, 1 - p], [1.0]))
        return [Level("nothing", guessing, max(p, 1 - p)), Level("the first step", certain, 1.0)]


def paint(mosaic: Tensor, colours: Tensor) -> Tensor:
    """A mosaic of bytes, (n, channels, 2, t, 2t), in (n, 4, 3) colours → (n, 3, 2t, 2t) in [0, 1].

    Colours lie in [0, 1], so their products with pixels do too, and nothing needs to be cut off.
    """
    n, t = len(mosaic), mosaic.shape[-2]
    across = (colours / 255).view(n, 2, 2, 3).permute(0, 3, 1, 2).repeat_interleave(t, dim=3)  # (n, 3, row, column and x)
    return (mosaic * across[:, :, :, None]).view(n, 3, 2 * t, 2 * t)  # the long last dimension is what makes it fast


def sketch(mosaic: Tensor) -> Tensor:
    """A mosaic of bytes, (n, channels, 2, t, 2t), without any colour → (n, 1, 2t, 2t) in [0, 1]."""
    return (mosaic.float() / 255).mean(dim=1, keepdim=True).view(len(mosaic), 1, 2 * mosaic.shape[-2], -1)


def shelf(part: Part, tile: int, photos: bool) -> Album:
    """Digits, fashion items, photographs if needed, and one blank: (c, t, t) bytes each. It is made once and then kept."""
    return _shelf(part, tile, photos, load_images, tuple(places()))


@lru_cache(maxsize=4)  # two of each task: the runs of a study begin at once with what an earlier one has made
def _shelf(part: Part, tile: int, photos: bool, load: Callable[[str, Part], Images], _where: tuple[Folder, ...]) -> Album:
    kinds = [(load("mnist", part), DIGIT), (load("fashion_mnist", part), FASHION)]
    pictures = [shrunk(_channels_first(images), tile) for images, _ in kinds]
    labels = [torch.from_numpy(images.labels) + start for images, start in kinds]
    if photos:
        photographs = _photos(load("cifar10", part))
        pictures = [grey.expand(-1, 3, -1, -1) for grey in pictures] + [shrunk(_channels_first(photographs), tile)]
        labels.append(torch.from_numpy(photographs.labels) + PHOTO)
    pictures.append(torch.zeros(1, *pictures[0].shape[1:], dtype=torch.uint8))
    return Album(torch.cat(pictures), torch.cat([*labels, torch.tensor([BLANK])]), BLANK + 1)


def _photos(images: Images) -> Images:
    """Cars as class 0 and birds as class 1, the border cut off: 28×28 of 32×32."""
    chosen = images.take(np.isin(images.labels, PHOTO_CLASSES))
    return Images(chosen.pixels[:, 2:30, 2:30], chosen.labels - PHOTO_CLASSES[0])


def _channels_first(images: Images) -> Tensor:
    pixels = torch.tensor(images.pixels)
    return pixels[:, None] if pixels.ndim == 3 else pixels.permute(0, 3, 1, 2)


def shrunk(pictures: Tensor, tile: int) -> Tensor:
    """Square tiles averaged down to the size asked for."""
    factor = pictures.shape[-1] // tile
    if factor == 1:
        return pictures
    return torch.cat([F.avg_pool2d(part.float(), factor).round().to(torch.uint8) for part in torch.split(pictures, 4096)])


def pair(n: int, groups: Sequence[Sequence[int]], p_same: float, generator: Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Two members of groups, and whether they are of the same group; every member is equally likely."""
    members = torch.tensor(groups)  # (groups, size)
    same = torch.rand(n, generator=generator) < p_same
    first = torch.randint(len(groups), (n,), generator=generator)
    shift = torch.randint(1, len(groups), (n,), generator=generator)
    second = torch.where(same, first, (first + shift) % len(groups))
    which = torch.randint(members.shape[1], (2, n), generator=generator)
    return members[first, which[0]], members[second, which[1]], same


def palette(colours: Sequence[Sequence[float]], which: Tensor) -> Tensor:
    """(n,) → (n, 3): the colours with these numbers."""
    return torch.tensor(colours)[which]


def red_or_blue(n: int, generator: Generator) -> Tensor:
    """The distractor: a colour that says nothing."""
    return palette([RED, BLUE], torch.randint(2, (n,), generator=generator))


def plain(n: int) -> Tensor:
    """White."""
    return torch.tensor(WHITE).expand(n, 3)


class Album:
    """A picture of whatever class is asked for."""

    def __init__(self, pictures: Tensor, labels: Tensor, classes: int = 10) -> None:
        order = labels.argsort(stable=True)
        self.pictures = pictures[order]
        """(pictures, channels, height, width)"""
        self.counts = labels.bincount(minlength=classes)
        self.starts = self.counts.cumsum(0) - self.counts

    def choose(self, classes: Tensor, generator: Generator) -> Tensor:
        """The number of a picture of each class asked for."""
        counts = self.counts[classes]
        which = (torch.rand(classes.shape, generator=generator) * counts).long().clamp_max(counts - 1)
        return self.starts[classes] + which

    def mosaic(self, chosen: Tensor) -> Tensor:
        """Pictures by number, laid out in rows and columns: (n, rows, columns) → (n, channels, rows, height, columns × width).

        Whole pictures are fetched from memory; their lines then go to where they belong, which takes half the time of a permuted
        copy.
        """
        n, rows, columns = chosen.shape
        _, channels, height, width = self.pictures.shape
        fetched = self.pictures.index_select(0, chosen.flatten()).view(-1, width)  # far faster than pictures[…]
        lines = _lines(n, rows, columns, channels, height)
        return fetched.index_select(0, lines).view(n, channels, rows, height, columns * width)


@lru_cache(maxsize=8)  # the sizes of the batches of a run: training, validation, probes
def _lines(n: int, rows: int, columns: int, channels: int, height: int) -> Tensor:
    """Which line of n × rows × columns pictures, one after the other, stands where in their mosaic."""
    lines = torch.arange(n * rows * columns * channels * height).view(n, rows, columns, channels, height)
    return lines.permute(0, 3, 1, 4, 2).flatten()
