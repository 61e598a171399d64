"""The format of a run folder: what `eureka.runs` says about itself and its records."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from benchmarks.pages.made import described, table
from eureka import runs

RECORDS: tuple[type[Any], ...] = (runs.Metrics, runs.ProbeRecord, runs.Outcome, runs.Probes)


def run_folder_page() -> str:
    """The files, then the keys of the records in them."""
    lead, _, rest = inspect.cleandoc(runs.__doc__ or "").partition("\n\n")
    files, _, after = rest.partition("\n\n")
    parts = ["# The run folder", lead, f"```text\n{inspect.cleandoc(files)}\n```", after.replace("``", "`")]
    for record in RECORDS:
        parts += [f"## {record.__name__}", described(record), _keys(record)]
    return "\n\n".join(parts) + "\n"


def _keys(record: type[Any]) -> str:
    rows = [(f"`{field.name}`", f"`{field.type}`") for field in dataclasses.fields(record)]
    return table(["key", "type"], rows).rstrip("\n")
