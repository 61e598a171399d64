"""The file formats of pictures and labels, read strictly: what does not fit exactly is an error."""

from __future__ import annotations

import io
import json
import math
import struct

import numpy as np
from numpy.typing import NDArray

from eureka.errors import WorkError

UNSIGNED_BYTES = 8


def decode_idx(content: bytes, dimensions: int, what: str) -> NDArray[np.uint8]:
    """An array of bytes in MNIST's idx format.

    Two zero bytes, the type, the number of dimensions, each dimension in 4 bytes, then the data.

    >>> decode_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]), 1, "labels").tolist()
    [7, 8, 9]
    """
    header = 4 + 4 * dimensions
    if content[:4] != bytes([0, 0, UNSIGNED_BYTES, dimensions]):
        raise WorkError(
            f"{what} begins with {content[:4].hex()} instead of 000008{dimensions:02d}; it is no idx file of its kind."
        )
    if len(content) < header:
        raise WorkError(f"{what} ends within its header of {header} bytes.")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    if len(content) - header != math.prod(shape):
        announced = "×".join(map(str, shape))
        raise WorkError(f"{what} announces {announced} bytes and holds {len(content) - header:,}.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def decode_strip(content: bytes, count: int, side: int, what: str) -> NDArray[np.uint8]:
    """(count, side, side, 3) from an RGB PNG `count` rows tall; each row holds one picture, line by line."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if picture.mode != "RGB" or picture.size != (side * side, count):
                width, height = picture.size
                raise WorkError(f"{what} is {picture.mode} of {width}×{height} instead of RGB of {side * side}×{count}.")
            rows = np.asarray(picture)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise WorkError(f"{what} is no readable PNG ({error}).") from None
    return rows.reshape(count, side, side, 3)


def decode_labels(content: bytes, what: str) -> NDArray[np.uint8]:
    """Labels from a JSON list of whole numbers below 256."""
    try:
        labels = json.loads(content)
    except ValueError as error:
        raise WorkError(f"{what} is not JSON ({error}).") from None
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise WorkError(f"{what} is not a list of labels.")
    return np.asarray(labels, dtype=np.uint8)


def checked_labels(labels: NDArray[np.uint8], classes: int, pictures: int, what: str) -> NDArray[np.int64]:
    """Labels, one for each picture and none beyond the last class."""
    if len(labels) != pictures:
        raise WorkError(f"{what} holds {len(labels):,} labels for {pictures:,} pictures.")
    if len(labels) and int(labels.max()) >= classes:
        raise WorkError(f"{what} holds the label {int(labels.max())}, but there are {classes} classes.")
    return labels.astype(np.int64)
