"""Gradient accumulation: the batches of one step of the optimiser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any


class Accumulated:
    """The batches of a loader: each as it is, or so many in a list. Mappings become dicts, which everyone can look into.

    >>> list(Accumulated([1, 2, 3, 4, 5], 2))
    [[1, 2], [3, 4]]
    """

    def __init__(self, loader: Any, count: int) -> None:
        self.loader, self.count = loader, count

    def __iter__(self) -> Iterator[Any]:
        batches = (dict(one) if isinstance(one, Mapping) else one for one in self.loader)
        if self.count == 1:
            yield from batches
            return
        while len(group := list(islice(batches, self.count))) == self.count:
            yield group
