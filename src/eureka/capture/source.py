"""How many rows the script's data has: rows that come again are a fault only where there are more of them."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

FEWEST_ELEMENTS = 2
"""A row of one number, such as a label, occurs everywhere."""
MOST_BYTES = 2e9
"""A larger array is not searched."""
MOST_COMPARED = 20_000_000
"""The rows of an array of more elements are taken to differ."""


def source_rows(batch: Sequence[Tensor]) -> float:
    """Return how many different rows the data has: those of the largest array that holds the rows of a batch.

    Without such an array it is the length of the largest data set that a DataLoader reads from; 0 if there is none of either.
    """
    found, listed = 0, 0
    objects = gc.get_objects()
    for one in objects:
        if issubclass(type(one), DataLoader):
            with contextlib.suppress(Exception):  # a data set of the user's may fail to tell its length
                listed = max(listed, len(one.dataset))
    arrays = [*(one for one in objects if issubclass(type(one), Tensor)), *_arrays(objects)]
    for row in _rows(batch):
        for array in arrays:
            with contextlib.suppress(Exception):  # a tensor without storage, on another device, of another kind
                if len(array) > found and _holds(array, row):
                    found = max(found, _different(array))
    return float(found or listed)


def _rows(batch: Sequence[Tensor]) -> list[Tensor]:
    """The first row of each tensor of a batch that is long enough to be recognised."""
    rows = [one[0].detach().cpu() for one in batch if one.layout == torch.strided and one.dim() > 1 and len(one)]
    return [row for row in rows if row.numel() >= FEWEST_ELEMENTS and bool((row != row.flatten()[0]).any())]


def _arrays(objects: Sequence[Any]) -> Iterator[np.ndarray[Any, Any]]:
    """NumPy's arrays where a script keeps them: in its names, in its functions' and in its data sets. They are not in `gc`."""
    places = [vars(one) for one in objects if issubclass(type(one), Dataset)]
    frame = sys._getframe(1)
    while frame is not None:
        places += [frame.f_locals, frame.f_globals]
        frame = frame.f_back  # type: ignore[assignment]
    seen = set()
    for place in places:
        for value in list(place.values()):
            if isinstance(value, np.ndarray) and id(value) not in seen:
                seen.add(id(value))
                yield value


def _different(array: Any) -> int:
    """How many of its rows are different."""
    tensor = array.detach().cpu() if isinstance(array, Tensor) else torch.from_numpy(array)
    return len(array) if tensor.numel() > MOST_COMPARED else len(torch.unique(tensor.reshape(len(tensor), -1), dim=0))


def _holds(array: Any, row: Tensor) -> bool:
    """Whether a row occurs in an array, in whatever type of numbers the array has."""
    if tuple(array.shape[1:]) != tuple(row.shape) or array.nbytes > MOST_BYTES or row.is_complex():
        return False
    tensor = array.detach().cpu() if isinstance(array, Tensor) else torch.from_numpy(array)
    tensor = tensor.to(row.dtype).reshape(len(tensor), -1)
    return bool((tensor == row.reshape(1, -1)).all(dim=1).any())
