"""From checked files to pictures and texts."""

from __future__ import annotations

import json
from functools import cache
from typing import Literal

import numpy as np

from eureka.data.catalogue import BIBLE, CIFAR10, FASHION_MNIST, MNIST, MOBY_DICK, SOTU
from eureka.data.dataset import DataSet
from eureka.data.idx import checked_labels, decode_idx
from eureka.data.images import Images
from eureka.data.sources.folder import Folder
from eureka.data.store import places, read
from eureka.data.strips import decode_labels, decode_strip
from eureka.errors import UnknownNameError

Part = Literal["train", "test"]
CLASSES = 10
STRIP_ROWS, STRIP_SIDE = 10_000, 32

IMAGES = {dataset.name: dataset for dataset in (MNIST, FASHION_MNIST, CIFAR10)}
CORPORA = {dataset.name: dataset for dataset in (SOTU, MOBY_DICK, BIBLE)}


def load_images(name: str, part: Part) -> Images:
    """The training or test pictures of a data set, as bytes; what has been read once is kept in memory."""
    if name not in IMAGES:
        raise UnknownNameError("data set of pictures", name, IMAGES)
    return _images(name, part, tuple(places()))


def load_documents(name: str) -> list[str]:
    """The documents of a corpus."""
    if name not in CORPORA:
        raise UnknownNameError("corpus", name, CORPORA)
    documents: list[str] = json.loads(read(CORPORA[name])["documents.json"])
    return documents


@cache
def _images(name: str, part: Part, where: tuple[Folder, ...]) -> Images:
    dataset = IMAGES[name]
    return _strips(dataset, part, where) if dataset is CIFAR10 else _idx(dataset, part, where)


def _idx(dataset: DataSet, part: Part, where: tuple[Folder, ...]) -> Images:
    stem = {"train": "train", "test": "t10k"}[part]
    pictures, labels = f"{stem}-images-idx3-ubyte", f"{stem}-labels-idx1-ubyte"
    contents = read(dataset, (pictures, labels), where)
    pixels = decode_idx(contents[pictures], 3, f"{dataset.name}/{pictures}")
    return Images(
        pixels, checked_labels(decode_idx(contents[labels], 1, f"{dataset.name}/{labels}"), CLASSES, len(pixels), labels)
    )


def _strips(dataset: DataSet, part: Part, where: tuple[Folder, ...]) -> Images:
    strips = [f"data_batch_{i}.png" for i in range(1, 6)] if part == "train" else ["test_batch.png"]
    labels = f"{part}_lables.json"
    contents = read(dataset, (*strips, labels), where)
    pixels = np.concatenate([decode_strip(contents[name], STRIP_ROWS, STRIP_SIDE, f"{dataset.name}/{name}") for name in strips])
    return Images(pixels, checked_labels(decode_labels(contents[labels], labels), CLASSES, len(pixels), labels))
