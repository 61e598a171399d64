"""The model of a run at some time, and what is measured of it."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eureka.errors import RequestError, WorkError

if TYPE_CHECKING:
    from eureka.probes import LinearProbe, ProbeRecord
    from eureka.runs import Record, RunFolder

SEED = 20_250_101  # the same samples for every run of a task


@dataclass(frozen=True)
class Snapshot:
    """A model as it was after so many steps, and its task."""

    task: Any
    model: Any
    step: int


@dataclass(frozen=True)
class Readings:
    """What can be read off a model after so many steps."""

    step: int
    found: list[LinearProbe]

    def to_dict(self) -> Record:
        return {"step": self.step, "found": [one.to_dict() for one in self.found]}


def located(path: Path) -> tuple[RunFolder, Path | None]:
    """The run, and the checkpoint that was asked for."""
    from eureka.runs import RunFolder

    folder, file = (RunFolder(path.parent.parent), path) if path.is_file() else (RunFolder(path), None)
    if folder.config() is None:
        what = "is not there" if not path.exists() else "is neither a run folder nor a checkpoint of one"
        raise RequestError(f"{path} {what}; give a folder that holds a config.json, as `eureka run` writes them.")
    return folder, file


def initial(folder: RunFolder) -> Snapshot:
    """Before the first step."""
    from eureka.config import run_config
    from eureka.experiment import build

    config = folder.config()
    assert config is not None
    return Snapshot(*build(run_config(**config)), 0)


def trained(folder: RunFolder, file: Path | None = None) -> Snapshot:
    """At a checkpoint: the newest unless another is asked for."""
    import torch

    from eureka.training.checkpoint import load_checkpoint

    fresh = initial(folder)
    try:
        state = torch.load(file, map_location="cpu", weights_only=True) if file else load_checkpoint(folder.checkpoints)
    except (OSError, RuntimeError, pickle.UnpicklingError):
        raise WorkError(f"{file} is not a checkpoint of a run, or it is damaged.") from None
    if state is None:
        raise WorkError(f"{folder.path} has no checkpoint yet; --initial shows the model before its first step.")
    fresh.model.load_state_dict(state["model"])
    step = int(state["step"])
    for module in fresh.model.modules():
        if hasattr(module, "advance"):
            module.advance(step)
    return Snapshot(fresh.task, fresh.model, step)


def before_the_leap(folder: RunFolder) -> Snapshot:
    """At the newest checkpoint from before the Eureka-moment's onset; without such a one, before the first step."""
    from eureka.training.checkpoint import checkpoint_before, checkpoint_step

    onset: int | None = (folder.result() or {}).get("onset_step")
    if onset is None:
        return initial(folder)
    file = checkpoint_before(folder.checkpoints, onset)
    return initial(folder) if file is None or checkpoint_step(file) > onset else trained(folder, file)


def measured(at: Snapshot, samples: int) -> ProbeRecord:
    """One forward and one backward pass in eval mode: nothing is dropped, nothing is trained."""
    from torch import Generator

    from eureka.probes import AttentionProbe

    batch = at.task.sample(samples, Generator().manual_seed(SEED), "validation")
    at.model.eval()
    with AttentionProbe(at.model, samples=None) as probe, probe.look():
        probe.steps = at.step
        at.task.loss(at.model(batch.inputs), batch).backward()
    return probe.records[0]


def read_off(at: Snapshot) -> Readings:
    """The intermediate answers that a line can tell from z of each head and from whole blocks."""
    from torch import Generator

    from eureka.probes import linear_probes

    generator = Generator().manual_seed(SEED)
    return Readings(at.step, linear_probes(at.model, at.task, representations=("z", "block"), generator=generator))
