"""How a log is read and judged: what the user chose and what they said about the task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eureka.curves.finding import Finding, examine
from eureka.curves.levels import NOTHING, Given
from eureka.curves.readers.curve import Curve, read_log
from eureka.curves.readers.table import Progress
from eureka.curves.thresholds import THRESHOLDS


@dataclass(frozen=True, kw_only=True)
class Examination:
    """The columns to take, the direction, what is known of the task, and how sure a moment must be."""

    column: str | None = None
    step_column: str | None = None
    lr_column: str | None = None
    lr_file: Path | None = None
    rising: bool | None = None
    given: Given = NOTHING
    min_confidence: float = THRESHOLDS.sure

    def of(self, log: Path, progress: Progress | None = None) -> list[Finding]:
        """Every curve of a log with what was found in it."""
        return [self.judge(curve) for curve in self.curves(log, progress)]

    def curves(self, log: Path, progress: Progress | None = None) -> list[Curve]:
        """Every curve of a log."""
        return read_log(
            log,
            column=self.column,
            step_column=self.step_column,
            lr_column=self.lr_column,
            lr_file=self.lr_file,
            rising=self.rising,
            progress=progress,
        )

    def judge(self, curve: Curve) -> Finding:
        """A curve with what was found in it."""
        given = self.given.about(curve, chosen=self.column is not None)
        return examine(curve, given=given, min_confidence=self.min_confidence)
