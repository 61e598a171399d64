"""The idx format of MNIST, read strictly: what does not fit exactly is an error, never a guess."""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from eureka.errors import WorkError

UNSIGNED_BYTES = 8


def decode_idx(content: bytes, dimensions: int, what: str) -> NDArray[np.uint8]:
    """An array of bytes: two zero bytes, the type, the number of dimensions, each dimension in 4 bytes, then the data.

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
        told = "×".join(map(str, shape))
        raise WorkError(f"{what} tells of {told} bytes and holds {len(content) - header:,}.")
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)


def checked_labels(labels: NDArray[np.uint8], classes: int, pictures: int, what: str) -> NDArray[np.int64]:
    """Labels, one for each picture and none beyond the last class."""
    if len(labels) != pictures:
        raise WorkError(f"{what} holds {len(labels):,} labels for {pictures:,} pictures.")
    if len(labels) and int(labels.max()) >= classes:
        raise WorkError(f"{what} holds the label {int(labels.max())}, but there are {classes} classes.")
    return labels.astype(np.int64)
