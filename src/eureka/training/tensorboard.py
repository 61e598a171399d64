"""The log once more for TensorBoard, by the same names; ``metrics.jsonl`` stays the truth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eureka.errors import MissingExtraError


class TensorBoardLog:
    """Event files in ``tensorboard/`` of a run folder; after a resume, TensorBoard hides what came after the checkpoint."""

    def __init__(self, folder: Path, step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "tensorboard") from None
        self.writer: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def add(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()
