"""Checkpoints: plain tensors and numbers, each file whole or absent. A run keeps its last two and one from before its leap."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from eureka.errors import WorkError
from eureka.files import write_whole
from eureka.runs import DIGITS

KEPT = 2
Misfit = Callable[[dict[str, Any], int], str | None]
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
    return sorted(path for path in folder.glob(f"step-{DIGITS}.pt") if not path.is_dir())


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


def load_checkpoint(folder: Path, misfit: Misfit = lambda state, step: None) -> dict[str, Any] | None:
    """The newest checkpoint that is whole and fits, or None to begin at the beginning.

    misfit   says why a state with the step of its file cannot be gone on from; such a checkpoint is passed over with one line
    """
    for path in reversed(checkpoint_files(folder)):
        try:
            state = read_checkpoint(path)
            why = misfit(state, checkpoint_step(path))
        except WorkError:
            why = "is damaged"
        if why is None:
            return state
        _log.warning("%s %s; going on from the one before it", path, why)
    return None


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, if it is one and every byte of it is as it was written."""
    try:
        with zipfile.ZipFile(path) as archive:
            whole = archive.testzip() is None
        state = torch.load(path, map_location="cpu", weights_only=True) if whole else None
    except (OSError, EOFError, zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, KeyError, UnpicklingError):
        state = None
    if not isinstance(state, dict):
        raise WorkError(f"{path} is not a checkpoint of a run, or it is damaged.")
    return state
