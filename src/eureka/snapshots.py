"""Snapshots: a run at one of its steps, what probes measure of its model, and what an experiment needs to go on from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from eureka.config import RunConfig
from eureka.errors import RequestError, WorkError
from eureka.experiment import build
from eureka.forks.rates import lasting_rate
from eureka.forks.setup import Setup
from eureka.probes.attention import AttentionProbe
from eureka.probes.induction import induction_scores
from eureka.probes.linear import linear_probes
from eureka.runs import ProbeRecord, Readings, RunFolder
from eureka.tasks.task import Batch, Task
from eureka.training.checkpoint import checkpoint_before, checkpoint_step, load_checkpoint, read_checkpoint
from eureka.training.config import TrainingConfig
from eureka.training.optimiser import QueryKeyRate, learning_rate, make_optimiser, set_learning_rate

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
    state = _checkpoint(folder, file)
    if state is None:
        raise WorkError(f"{folder.path} has no checkpoint yet; --initial shows the model before its first step.")
    return _at(state, initial_snapshot(folder))


def _checkpoint(folder: RunFolder, file: Path | None) -> dict[str, Any] | None:
    """What a checkpoint holds, by default the newest; None where there is none yet."""
    return read_checkpoint(file) if file else load_checkpoint(folder.checkpoints)


def _at(state: dict[str, Any], initial: Snapshot) -> Snapshot:
    try:
        initial.model.load_state_dict(state["model"])
        step = int(state["step"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError):
        raise WorkError("the checkpoint does not hold the weights of this run's model; it belongs to another run.") from None
    for module in initial.model.modules():
        if callable(advance := getattr(module, "advance", None)):
            advance(step)
    return Snapshot(initial.task, initial.model, step)


def hand_over_run(folder: RunFolder, file: Path | None = None) -> Setup:
    """The run at a checkpoint, by default the newest, with the optimiser and the batches that its loop would go on with."""
    stored = folder.config()
    assert stored is not None
    config = RunConfig.from_json(stored.parts).training
    state, snapshot = _checkpoint(folder, file), initial_snapshot(folder)
    optimizer = make_optimiser(snapshot.model, config)
    generator = Generator().manual_seed(config.seed)
    notes = [f"{folder.name} before its first step: it has no checkpoint yet."]
    if state is not None:
        snapshot = _at(state, snapshot)
        optimizer.load_state_dict(state["optimiser"])
        generator.set_state(state["data_generator"])
        notes = [f"{folder.name} at step {snapshot.step:,}."]
    value, note = lasting_rate(learning_rate(config), snapshot.step, config.steps)
    set_learning_rate(optimizer, value)
    loop = RunLoop(snapshot.task, config)
    return Setup(
        model=snapshot.model,
        batches=RunBatches(snapshot.task, config.batch_size, generator),
        loss=loop.loss if config.qk_lr_scale == 1.0 else None,
        step=loop.step if config.qk_lr_scale != 1.0 else None,
        optimizer=optimizer,
        log=folder.metrics_file if len(folder.metrics()) > 1 else None,
        notes=tuple(filter(None, [*notes, note, "" if config.device == "cpu" else "It is looked at on the processor."])),
    )


@dataclass(frozen=True)
class RunLoop:
    """A step of a run's loop, without its logs."""

    task: Task
    config: TrainingConfig

    def loss(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16"):
            outputs = model(batch["inputs"])
            return self.task.loss(outputs, Batch(batch["inputs"], batch["labels"], {}), self.config.label_smoothing)

    def step(self, model: nn.Module, optimizer: Optimizer, batch: dict[str, Tensor]) -> Tensor:
        loss = self.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        with QueryKeyRate(model, self.config.qk_lr_scale).around_step():
            optimizer.step()
        return loss.detach()


@dataclass(frozen=True)
class RunBatches:
    """The batches of a run from some state of its generator on; every pass gives the same."""

    task: Task
    size: int
    generator: Generator

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        own = Generator()
        own.set_state(self.generator.get_state())
        while True:
            batch = self.task.sample(self.size, own)
            yield {"inputs": batch.inputs, "labels": batch.labels}


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
        if (repeats := snapshot.task.repeats(batch)) is not None:
            probe.show(repeats.tokens, repeats.asked)
        snapshot.task.loss(snapshot.model(batch.inputs), batch).backward()  # type: ignore[no-untyped-call]
    return probe.records[0]


def with_repeated_tokens(record: ProbeRecord, snapshot: Snapshot, samples: int) -> ProbeRecord:
    """The record with the induction-head scores on random tokens, said twice (or more often, if there are few tokens)."""
    task = snapshot.task
    if task.vocabulary is None:
        raise RequestError("--repeated needs a task whose inputs are tokens; this one shows features or pictures.")
    length = task.input_shape[0]
    drawn = torch.rand(samples, task.vocabulary - 1, generator=Generator().manual_seed(SEED))
    once = 1 + drawn.topk(min(length // 2, task.vocabulary - 1), dim=1).indices  # all different; 0 is often a mask
    inputs = once.repeat(1, length)[:, :length]
    scores = {site.index: site.values for site in induction_scores(snapshot.model, inputs)}
    sites = [replace(site, values=site.values | scores.get(site.index, {})) for site in record.sites]
    return replace(record, sites=sites)


def probe_answers(snapshot: Snapshot, on_fit: Callable[[int, int], None] | None = None) -> Readings:
    """Read the intermediate answers off z of each head and off whole blocks; `on_fit` is told after each."""
    generator = Generator().manual_seed(SEED)
    found = linear_probes(snapshot.model, snapshot.task, representations=("z", "block"), generator=generator, on_fit=on_fit)
    return Readings(snapshot.step, found)
