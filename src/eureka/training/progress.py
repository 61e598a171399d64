"""What a run has shown so far: sums since the last log, validations, and the leap to the floor if there was one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from eureka.runs import Leap, Level, Metrics, RecordLog, read_metrics
from eureka.training.leaps import eureka_leap, find_leaps, onset


class Progress:
    """Training loss and accuracy are means over all steps since the last log."""

    def __init__(self, log: RecordLog, levels: Sequence[Level], device: str) -> None:
        self.log, self.levels = log, levels
        self.metrics: list[Metrics] = []
        self.loss, self.accuracy = torch.zeros((), device=device), torch.zeros((), device=device)
        self.count = 0
        self.leap: Leap | None = None

    def add(self, loss: Tensor, accuracy: Tensor) -> None:
        self.loss += loss
        self.accuracy += accuracy
        self.count += 1

    def means(self) -> tuple[Tensor, Tensor]:
        """The means since the last log; the sums begin anew."""
        means = self.loss / self.count, self.accuracy / self.count
        self.loss.zero_()
        self.accuracy.zero_()
        self.count = 0
        return means

    def record(self, line: Metrics) -> None:
        self.log.append(line)
        self.metrics.append(line)
        self._look_for_leap()

    def _look_for_leap(self) -> None:
        if self.leap is None:
            self.leap = eureka_leap(self.metrics, self.levels)

    def leaps(self) -> list[Leap]:
        """The leaps so far, from level to level."""
        return find_leaps(self.metrics, self.levels)

    def onset(self) -> int | None:
        """The step at which the run left the last plateau, for good or as it looks now; None while the run is on it."""
        if self.leap is not None:
            return self.leap.onset
        lines, plateau = self.metrics, self.levels[-2].loss
        below = bool(lines) and lines[-1].validation_loss < plateau
        return lines[onset(lines, len(lines) - 1, plateau)].step if below else None

    def state(self) -> dict[str, Tensor | int]:
        return {"loss": self.loss, "accuracy": self.accuracy, "count": self.count, "bytes": self.log.size}

    def resume(self, state: Mapping[str, Tensor | int] | None) -> None:
        """Go on after the lines that a checkpoint knew of; later lines will come again."""
        self.log.open(int(state["bytes"]) if state else 0)
        self.metrics = read_metrics(self.log.path, self.log.size)
        if state:
            self.loss.copy_(torch.as_tensor(state["loss"]))
            self.accuracy.copy_(torch.as_tensor(state["accuracy"]))
            self.count = int(state["count"])
        self._look_for_leap()
