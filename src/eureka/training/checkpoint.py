"""Checkpoints: plain tensors and numbers, each file whole or absent. A run keeps its last two and one from before its leap."""

from __future__ import annotations

import io
import logging
import zipfile
from pathlib import Path
from typing import Any

import torch

from eureka.files import write_whole
from eureka.runs import DIGITS

KEPT = 2
_log = logging.getLogger(__name__)


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], onset: int | None = None) -> None:
    """Write the state of a step; delete all but the last two and the one before the `onset` of a Eureka-moment."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_whole(folder / f"step-{step:09d}.pt", buffer.getvalue())
    before = None if onset is None else checkpoint_before(folder, onset)
    for old in checkpoint_files(folder)[:-KEPT]:
        if old != before:
            old.unlink(missing_ok=True)


def checkpoint_files(folder: Path) -> list[Path]:
    """The checkpoints, oldest first."""
    return sorted(folder.glob(f"step-{DIGITS}.pt"))


def checkpoint_step(path: Path) -> int:
    """
    >>> checkpoint_step(Path("step-000000200.pt"))
    200
    """
    return int(path.stem.removeprefix("step-"))


def checkpoint_before(folder: Path, onset: int) -> Path | None:
    """The newest checkpoint at or before a step; the oldest one where all are later."""
    files = checkpoint_files(folder)
    return next((path for path in reversed(files) if checkpoint_step(path) <= onset), files[0] if files else None)


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
