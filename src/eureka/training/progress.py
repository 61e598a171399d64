"""What a run has shown so far: sums since the last log, validations, and the Eureka-moment if it had one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from eureka.runs import Record
from eureka.training.line_log import LineLog
from eureka.training.moment import LevelLike, Moment, Point, eureka_moment, find_moments, onset


class Progress:
    """Training loss and accuracy are means over all steps since the last log."""

    def __init__(self, log: LineLog, levels: Sequence[LevelLike], device: str) -> None:
        self.log, self.levels = log, levels
        self.records: list[Record] = []
        self.loss, self.accuracy = torch.zeros((), device=device), torch.zeros((), device=device)
        self.count = 0
        self.moment: Moment | None = None

    def add(self, loss: Tensor, accuracy: Tensor) -> None:
        self.loss += loss
        self.accuracy += accuracy
        self.count += 1

    def means(self) -> tuple[Tensor, Tensor]:
        """Since the last log; begins anew."""
        means = self.loss / self.count, self.accuracy / self.count
        self.loss.zero_()
        self.accuracy.zero_()
        self.count = 0
        return means

    def record(self, record: Record) -> None:
        self.log.append(record)
        self.records.append(record)
        self.look()

    def look(self) -> None:
        """See whether the Eureka-moment has come."""
        if self.moment is None:
            self.moment = eureka_moment(self._points(), self.levels)

    def moments(self) -> list[Moment]:
        """The leaps so far, from level to level."""
        return find_moments(self._points(), self.levels)

    def onset(self) -> int | None:
        """When the last plateau was left, be it for good or as it looks now; None while the run is on it."""
        if self.moment is not None:
            return self.moment.onset
        points, plateau = self._points(), self.levels[-2].loss
        return points[onset(points, len(points) - 1, plateau)].step if points and points[-1].loss < plateau else None

    def _points(self) -> list[Point]:
        return [Point(r["step"], r["validation_loss"], r["validation_accuracy"]) for r in self.records]

    def state(self) -> dict[str, Tensor | int]:
        return {"loss": self.loss, "accuracy": self.accuracy, "count": self.count, "bytes": self.log.size}

    def resume(self, state: dict[str, Tensor | int] | None) -> None:
        """Go on after the log that a checkpoint knew of; what came later will come again."""
        self.records = self.log.open(int(state["bytes"]) if state else 0)
        if state:
            self.loss.copy_(torch.as_tensor(state["loss"]))
            self.accuracy.copy_(torch.as_tensor(state["accuracy"]))
            self.count = int(state["count"])
        self.look()
