"""Where to go on from: tensors and plain numbers only, written whole or not at all, the last two kept."""

from __future__ import annotations

import io
import logging
import zipfile
from pathlib import Path
from typing import Any

import torch

from eureka.runs import write_atomically

KEPT = 2
_log = logging.getLogger(__name__)


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> None:
    """Write the state of a step and forget all but the last two."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(folder / f"step-{step:09d}.pt", buffer.getvalue())
    for old in checkpoint_files(folder)[:-KEPT]:
        old.unlink(missing_ok=True)


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints, oldest first."""
    return sorted(folder.glob("step-*.pt"))


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest checkpoint that is whole, or None to begin at the beginning."""
    for path in reversed(checkpoint_files(folder)):
        try:
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
            if damaged is None:
                state = torch.load(path, map_location="cpu", weights_only=True)
                assert isinstance(state, dict)
                return state
        except (OSError, zipfile.BadZipFile, RuntimeError, AssertionError):
            pass
        _log.warning("%s is damaged; going on from the one before it", path)
    return None
