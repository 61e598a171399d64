"""Snapshots: the model of a run at one of its steps, and what probes measure of it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, nn

from eureka.config import RunConfig
from eureka.errors import RequestError, WorkError
from eureka.experiment import build
from eureka.probes.attention import AttentionProbe
from eureka.probes.linear import linear_probes
from eureka.runs import ProbeRecord, Readings, RunFolder
from eureka.tasks.task import Task
from eureka.training.checkpoint import checkpoint_before, checkpoint_step, load_checkpoint

SEED = 20_250_101
"""Every run of a task is measured on the same samples."""


@dataclass(frozen=True)
class Snapshot:
    """A model after a number of training steps, and its task."""

    task: Task
    model: nn.Module
    step: int


def find_run(path: Path) -> tuple[RunFolder, Path | None]:
    """The run folder that a path names, and the checkpoint if it names one."""
    folder, file = (RunFolder(path.parent.parent), path) if path.is_file() else (RunFolder(path), None)
    if folder.config() is None:
        what = "is not there" if not path.exists() else "is neither a run folder nor a checkpoint of one"
        raise RequestError(f"{path} {what}; give a folder that holds a config.json, as `eureka run` writes them.")
    return folder, file


def initial_snapshot(folder: RunFolder) -> Snapshot:
    """The model before its first step."""
    config = folder.config()
    assert config is not None
    return Snapshot(*build(RunConfig.from_json(config.parts)), 0)


def trained_snapshot(folder: RunFolder, file: Path | None = None) -> Snapshot:
    """The model at a checkpoint, by default the newest."""
    initial = initial_snapshot(folder)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True) if file else load_checkpoint(folder.checkpoints)
    except (OSError, RuntimeError, pickle.UnpicklingError):
        raise WorkError(f"{file} is not a checkpoint of a run, or it is damaged.") from None
    if state is None:
        raise WorkError(f"{folder.path} has no checkpoint yet; --initial shows the model before its first step.")
    initial.model.load_state_dict(state["model"])
    step = int(state["step"])
    for module in initial.model.modules():
        if callable(advance := getattr(module, "advance", None)):
            advance(step)
    return Snapshot(initial.task, initial.model, step)


def snapshot_before_leap(folder: RunFolder) -> Snapshot:
    """The model at the newest checkpoint before the onset of the leap, or before its first step if there is none."""
    outcome = folder.result()
    if outcome is None or outcome.onset_step is None:
        return initial_snapshot(folder)
    onset = outcome.onset_step
    file = checkpoint_before(folder.checkpoints, onset)
    return initial_snapshot(folder) if file is None or checkpoint_step(file) > onset else trained_snapshot(folder, file)


def probe_attention(snapshot: Snapshot, samples: int) -> ProbeRecord:
    """Measure attention and gradients in one forward and one backward pass in eval mode; nothing is trained."""
    batch = snapshot.task.sample(samples, Generator().manual_seed(SEED), "validation")
    snapshot.model.eval()
    with AttentionProbe(snapshot.model, samples=None) as probe, probe.look():
        probe.steps = snapshot.step
        snapshot.task.loss(snapshot.model(batch.inputs), batch).backward()  # type: ignore[no-untyped-call]
    return probe.records[0]


def probe_answers(snapshot: Snapshot) -> Readings:
    """Read the intermediate answers off z of each head and off whole blocks."""
    generator = Generator().manual_seed(SEED)
    found = linear_probes(snapshot.model, snapshot.task, representations=("z", "block"), generator=generator)
    return Readings(snapshot.step, found)
