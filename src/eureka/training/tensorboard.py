"""The log once more for TensorBoard, by the same names; ``metrics.jsonl`` stays the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eureka.errors import MissingExtraError
from eureka.runs import Record


class TensorBoardLog:
    """Event files in ``tensorboard/`` of a run folder; after a resume, what came later than the checkpoint is hidden."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "tensorboard") from None
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def __call__(self, record: Record) -> None:
        for name, value in record.items():
            if name != "step":
                self.writer.add_scalar(name, value, record["step"])
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
