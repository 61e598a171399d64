"""Pictures of the written pages, drawn by the code that they tell of."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np


def pictures() -> dict[str, bytes]:
    """Each picture as PNG, by its place in the site."""
    return {"detect.png": _detect()}


def _detect() -> bytes:
    """``eureka detect loss.csv --plot detect.png`` of the log that the Start page makes."""
    from eureka.curves.examination import Examination
    from eureka.curves.plot import write_plot

    with tempfile.TemporaryDirectory() as name:
        log, picture = Path(name) / "loss.csv", Path(name) / "detect.png"
        log.write_text(example_log(), encoding="utf-8")
        write_plot(Examination().of(log), picture)
        return picture.read_bytes()


def example_log() -> str:
    """A loss that waits for 700 steps and then falls."""
    steps = np.arange(1200)
    losses = 0.65 - 0.5 / (1 + np.exp(-(steps - 700) / 25)) + np.random.default_rng(0).normal(0, 0.02, 1200)
    return "step,loss\n" + "\n".join(f"{step},{loss:.4f}" for step, loss in zip(steps, losses, strict=True)) + "\n"
