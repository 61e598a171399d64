"""Read the loss curve out of a log of any of the known formats."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from eureka.curves.grid import Array
from eureka.curves.readers.columns import find_loss, find_rate, find_step
from eureka.curves.readers.file_types import Progress, open_log
from eureka.curves.readers.series import ROWS
from eureka.errors import RequestError

Role = Literal["train", "validation", "other"]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A loss curve, or that of a metric of which more is better, and where it came from."""

    file: str
    metric: str
    step_name: str
    steps: Array
    values: Array
    lr: Array | None
    """The learning rate at each step, if the file (or the one given for it) has it."""
    points: int
    """Points in the file; a very long series is kept thinned out."""
    metrics: tuple[str, ...]
    """All numeric columns of the file."""
    run: str | None = None
    """The name of the run inside the file or folder, if it holds several."""
    role: Role = "other"
    rising: bool = False
    """Whether more is better, as of an accuracy."""
    epochs: Array | None = None
    """The epoch of each point, where the file says it."""
    notes: tuple[str, ...] = ()
    """Which columns were taken and why, and what was done to the rows."""


def read_log(path: str | Path, **options: Any) -> list[Curve]:
    """Every curve of every run in a file or folder: runs in order, in each run train before validation."""
    return [read_curve(path, **options)]


def read_curve(
    path: str | Path,
    *,
    column: str | None = None,
    step_column: str | None = None,
    lr_column: str | None = None,
    lr_file: str | Path | None = None,
    progress: Progress | None = None,
) -> Curve:
    """The loss curve in a file or folder; columns that are not named are guessed, and the result names the guess.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "log.csv"
    ...     _ = file.write_text("step,loss\\n0,2.5\\n10,2.0\\n20,1.5\\n")
    ...     curve = read_curve(file)
    >>> curve.metric, curve.step_name, curve.values.tolist()
    ('loss', 'step', [2.5, 2.0, 1.5])
    """
    path = Path(path)
    with open_log(path, progress) as log:
        if not log.names:
            raise RequestError(f"{path}: holds no numbers.")
        step = find_step(log, step_column)
        rate = find_rate(log, lr_column)
        metric = find_loss(log, step, rate, column)
        if metric is None:
            raise RequestError(
                f"{path}: no column of numbers is left for the loss (there is {', '.join(log.names)}); name one with --column."
            )
        wanted = [metric]
        if rate is not None and rate != metric and lr_file is None:
            wanted.append(rate)
        loss, *others = log.read(step, wanted)
    if loss.points < 2:
        raise RequestError(
            f"{path}: {metric!r} has {'one point' if loss.points else 'no finite value'}; a curve needs at least two."
        )
    steps, values = loss.result()
    rates = held(*others[0].result(), steps) if others else None
    return Curve(
        file=str(path),
        metric=metric,
        step_name=step,
        steps=steps,
        values=values,
        lr=rates if lr_file is None else _rates_of(Path(lr_file), steps, step_column),
        points=loss.points,
        metrics=tuple(log.names),
    )


def held(steps: Array, rates: Array, wanted: Array) -> Array | None:
    """The rate at each wanted step: that of the last step logged before it, because schedules change the rate in steps.

    >>> held(np.array([0.0, 10.0]), np.array([0.1, 0.01]), np.array([0.0, 9.0, 10.0])).tolist()
    [0.1, 0.1, 0.01]
    """
    if not len(steps):
        return None
    order = np.argsort(steps, kind="stable")
    place = np.searchsorted(steps[order], wanted, side="right") - 1
    return np.asarray(rates[order][np.maximum(place, 0)])


def _rates_of(path: Path, steps: Array, step_name: str | None) -> Array | None:
    """The learning rate at each step, out of a file of its own."""
    with open_log(path) as log:
        step = find_step(log, step_name if step_name in log.names else None)
        rate = find_rate(log, None) or find_loss(log, step, None, None)
        if rate is None:
            raise RequestError(f"{path}: holds no learning rate.")
        [series] = log.read(step, [rate])
    own, rates = series.result()
    numbered = step == ROWS and not log.own_steps
    if numbered and len(own) != len(steps):
        raise RequestError(f"{path}: {len(own)} learning rates without steps for a curve of {len(steps)} points.")
    return held(steps if numbered else own, rates, steps)
