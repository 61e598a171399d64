"""A log of metrics as columns, for pictures of many lines."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from eureka.runs.folder import RunFolder
from eureka.runs.logs import iterate_metrics
from eureka.runs.records import Metrics


@dataclass(frozen=True)
class MetricsColumns:
    """A log of metrics as columns, which take a tenth of the memory of its lines."""

    columns: tuple[array[float], ...]
    """in the order of the fields of `Metrics`"""

    @classmethod
    def of(cls, folder: RunFolder) -> MetricsColumns:
        columns = tuple(array("d") for _ in fields(Metrics))
        for line in iterate_metrics(folder.metrics_file):
            for column, value in zip(columns, vars(line).values(), strict=True):
                column.append(value)
        return cls(columns)

    @property
    def steps(self) -> Any:
        return np.asarray(self.columns[0])

    @property
    def values(self) -> list[Any]:
        """Losses and accuracies."""
        return [np.asarray(column) for column in self.columns[1:-1]]

    def line(self, index: int) -> Metrics:
        step, *rest = (column[index] for column in self.columns)
        return Metrics(int(step), *rest)
