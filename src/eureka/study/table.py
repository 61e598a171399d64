"""The runs of a study as one table: what was varied, and what came of it. No torch."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from eureka.runs import Record, RunFolder, write_atomically
from eureka.study.settings import varied_keys
from eureka.study.statistics import flatten

OUTCOMES = ("status", "steps", "samples", "seconds", "onset_step", "eureka_step", "final_loss", "final_accuracy")


def write_runs(folders: Sequence[RunFolder], path: Path) -> Path:
    """Write a CSV file with a line for each run; one that has not ended has no outcome."""
    rows = run_rows(folders)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
    return path


def run_rows(folders: Sequence[RunFolder]) -> list[Record]:
    """One row for each run: its name, fix, learning rate and seed, whatever else differs between the runs, and its outcome."""
    configs = [flatten(folder.config() or {}) for folder in folders]
    varied = dict.fromkeys(["attention.name", "training.lr", "training.seed", *varied_keys(configs)])
    return [_row(folder, config, varied) for folder, config in zip(folders, configs, strict=True)]


def _row(folder: RunFolder, config: Record, varied: Iterable[str]) -> Record:
    result = folder.result() or {}
    return {"run": folder.name} | {key: config.get(key) for key in varied} | {key: result.get(key) for key in OUTCOMES}
