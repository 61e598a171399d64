"""A run on disk: a folder that explains itself.

    config.json        everything that decides the result
    recipe.json        the recipe that the run was made from, and the keys that were changed; absent where no recipe was used
    environment.json   versions and machine, which decide the last bits
    start.json         what the model's start rescaled before the first step; absent with the paper's start
    task.json          the levels of the task's plateaus and its floor, computed from theory, and the names of its tokens
    samples.json       a few samples of the task with their labels, for people to look at; absent in older runs
    metrics.jsonl      one `Metrics` a line, one line each time the run logs
    attention.jsonl    one `ProbeRecord` a line: what attention did in some of the training steps
    attention/         weights of attention on one validation sample at some steps, as NumPy arrays (layer, head, query, key)
    result.json        the `Outcome`, written once, when the run has ended
    probes.json        the `Probes` that `eureka probe` measured last
    checkpoints/       where to go on from after an interruption
    worker.log         what the run's process wrote, when a pool started it
    .alive             who is at work on the run now; touched every few seconds, and absent when nobody is

This package alone reads and writes these files (a checkpoint is written by `eureka.training.checkpoint`). A step counts the steps
done: step 0 is the model as it was initialised. No torch is needed to read a run.
"""

from __future__ import annotations

from eureka.runs.columns import MetricsColumns
from eureka.runs.folder import DIGITS, PLANNED, Run, RunFolder, find_runs, read_run
from eureka.runs.logs import RecordLog, iterate_metrics, read_lines, read_metrics
from eureka.runs.parsing import Number
from eureka.runs.probe_records import INDUCTION, MEASURES, LinearProbe, PositionShare, ProbeRecord, Probes, Readings, SiteRecord
from eureka.runs.records import (
    LabelledSample,
    Leap,
    Level,
    Metrics,
    Origin,
    Outcome,
    Rescaled,
    StartRecord,
    Status,
    StoredConfig,
    TaskRecord,
    TaskSamples,
)

__all__ = [
    "DIGITS",
    "INDUCTION",
    "LabelledSample",
    "Leap",
    "Level",
    "LinearProbe",
    "MEASURES",
    "Metrics",
    "MetricsColumns",
    "Number",
    "PLANNED",
    "Origin",
    "Outcome",
    "PositionShare",
    "ProbeRecord",
    "Probes",
    "Readings",
    "RecordLog",
    "Rescaled",
    "Run",
    "RunFolder",
    "SiteRecord",
    "StartRecord",
    "Status",
    "StoredConfig",
    "TaskRecord",
    "TaskSamples",
    "find_runs",
    "iterate_metrics",
    "read_lines",
    "read_metrics",
    "read_run",
]
