"""Pictures packed as the rows of one tall PNG."""

from __future__ import annotations

import io
import json

import numpy as np
from numpy.typing import NDArray

from eureka.errors import WorkError


def decode_strip(content: bytes, count: int, side: int, what: str) -> NDArray[np.uint8]:
    """(count, side, side, 3) from an RGB picture `count` rows tall, each row holding one picture line by line."""
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
    """Labels from a JSON list of small whole numbers."""
    try:
        labels = json.loads(content)
    except ValueError as error:
        raise WorkError(f"{what} is not JSON ({error}).") from None
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise WorkError(f"{what} is not a list of labels.")
    return np.asarray(labels, dtype=np.uint8)
