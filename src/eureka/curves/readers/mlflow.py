"""MLflow's file store (``mlruns``), read without MLflow: a folder for each run, and in it a file for each metric.

A line of such a file is ``timestamp value step``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from eureka.curves.readers.numbers import number
from eureka.curves.readers.table import Table, TableBuilder

STEP = "step"


def run_folders(path: Path) -> list[Path]:
    """The folders of runs at or below a path, the store itself or one of its experiments, in the order of their start."""
    if _is_run(path):
        return [path]
    below = [one for pattern in ("*", "*/*", "*/*/*") for one in path.glob(pattern) if one.is_dir()]
    return sorted(filter(_is_run, below), key=lambda run: (_told(run, "start_time"), run.name))


def _is_run(path: Path) -> bool:
    return (path / "metrics").is_dir() and (path / "meta.yaml").is_file()


def run_name(path: Path) -> str:
    """The name that the run was given, else its id."""
    return _told(path, "run_name").strip("'\" ") or path.name


def _told(path: Path, key: str) -> str:
    text = (path / "meta.yaml").read_text(encoding="utf-8", errors="replace")
    found = re.search(rf"^{key}:[ \t]*(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else ""


def read_run(path: Path) -> Table:
    """All metrics of a run; the values of one step are one row."""
    rows: dict[tuple[float, int], dict[str, float | str]] = {}
    for file in sorted(one for one in (path / "metrics").rglob("*") if one.is_file()):
        name = file.relative_to(path / "metrics").as_posix()
        seen: dict[float, int] = {}
        for step, value in _points(file):
            seen[step] = seen.get(step, -1) + 1
            rows.setdefault((step, seen[step]), {STEP: step})[name if name != STEP else "step (metric)"] = value
    builder = TableBuilder()
    for key in sorted(rows):
        builder.add_record(rows[key])
    return builder.finish(own_steps=True)


def _points(file: Path) -> Iterator[tuple[float, float]]:
    with file.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            parts = line.split()
            step, value = (number(parts[2]), number(parts[1])) if len(parts) >= 3 else (float("nan"),) * 2
            if step == step and value == value:
                yield step, value
