"""Labelled pictures: MNIST, Fashion-MNIST and CIFAR-10 from checked files, and scikit-learn's digits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from eureka.data.catalogue import CIFAR10, FASHION_MNIST, MNIST
from eureka.data.dataset import DataSet
from eureka.data.decoding import checked_labels, decode_idx, decode_labels, decode_strip
from eureka.data.sources import Folder
from eureka.data.store import places, read
from eureka.errors import UnknownNameError

Part = Literal["train", "test"]
CLASSES = 10
STRIP_ROWS, STRIP_SIDE = 10_000, 32

IMAGES = {dataset.name: dataset for dataset in (MNIST, FASHION_MNIST, CIFAR10)}


@dataclass(frozen=True)
class Images:
    """Pictures (n, height, width) or (n, height, width, 3), as floats in [0, 1] or as bytes, and their classes."""

    pixels: NDArray[Any]
    labels: NDArray[np.int64]

    def split(self, every: int) -> tuple[Images, Images]:
        """Disjoint training and validation pictures: of each class one in `every` is held out, without a seed."""
        held_out = np.zeros(len(self.labels), dtype=bool)
        for label in np.unique(self.labels):
            held_out[np.flatnonzero(self.labels == label)[every - 1 :: every]] = True
        return self.take(~held_out), self.take(held_out)

    def take(self, chosen: NDArray[np.bool_]) -> Images:
        return Images(self.pixels[chosen], self.labels[chosen])


@cache
def load_digits() -> Images:
    """The 1,797 handwritten digits, 8×8, that ship with scikit-learn (UCI, Alpaydin & Kaynak 1998)."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    return Images((bunch.images / 16).astype(np.float32), bunch.target.astype(np.int64))


def load_images(name: str, part: Part) -> Images:
    """The training or test pictures of a data set, as bytes; they are read once and then kept in memory."""
    if name not in IMAGES:
        raise UnknownNameError("data set of pictures", name, IMAGES)
    return _images(name, part, tuple(places()))


@cache
def _images(name: str, part: Part, where: tuple[Folder, ...]) -> Images:
    dataset = IMAGES[name]
    return _strips(dataset, part, where) if dataset is CIFAR10 else _idx(dataset, part, where)


def _idx(dataset: DataSet, part: Part, where: tuple[Folder, ...]) -> Images:
    stem = {"train": "train", "test": "t10k"}[part]
    pictures, labels = f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"
    contents = read(dataset, (pictures, labels), where)
    pixels = decode_idx(contents[pictures], 3, f"{dataset.name}/{pictures}")
    found = decode_idx(contents[labels], 1, f"{dataset.name}/{labels}")
    return Images(pixels, checked_labels(found, CLASSES, len(pixels), labels))


def _strips(dataset: DataSet, part: Part, where: tuple[Folder, ...]) -> Images:
    strips = [f"data_batch_{i}.png" for i in range(1, 6)] if part == "train" else ["test_batch.png"]
    labels = f"{part}_lables.json"
    contents = read(dataset, (*strips, labels), where)
    pixels = np.concatenate([decode_strip(contents[name], STRIP_ROWS, STRIP_SIDE, f"{dataset.name}/{name}") for name in strips])
    return Images(pixels, checked_labels(decode_labels(contents[labels], labels), CLASSES, len(pixels), labels))
