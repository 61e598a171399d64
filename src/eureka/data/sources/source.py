"""What every source is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from eureka.data.dataset import Contents, DataSet

Tell = Callable[[str, int, int | None], None]
"""Told while something is brought: what, how many bytes of it, and of how many if that is known."""


class Source(Protocol):
    """A place that may hold a data set."""

    @property
    def name(self) -> str: ...

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        """The files, not yet checked; `UnavailableError` with the reason when it cannot."""
        ...
