"""One run: from a config to a trained model in a folder."""

from __future__ import annotations

import contextlib
import math
import platform
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eureka.config import RunConfig
from eureka.errors import RequestError, WorkError
from eureka.formats import listing
from eureka.group import examining_alone
from eureka.models.start import STARTS, Start
from eureka.runs import Metrics, Origin, Outcome, Rescaled, RunFolder, StartRecord, Status, StoredConfig, TaskRecord

if TYPE_CHECKING:
    from torch import nn

    from eureka.registry import Part
    from eureka.tasks.task import Task
    from eureka.training.loop import Loop
    from eureka.training.replicas import Replicas

START_SAMPLES, START_SEED = 128, 2**31
"""The batch on which ``model.start`` measures: the same for every seed of training."""


@dataclass(frozen=True)
class RunResult:
    """A run that has ended."""

    folder: RunFolder
    outcome: Outcome

    @property
    def eureka_step(self) -> int | None:
        return self.outcome.eureka_step


@contextlib.contextmanager
def _memory_told() -> Iterator[None]:
    """A config that does not fit into memory is one sentence."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        told = str(error)
        if isinstance(error, MemoryError) or "allocate" in told or "Storage size calculation overflowed" in told:
            raise WorkError(
                f"there is not enough memory for this config; make the model or the batch smaller ({told})."
            ) from None
        raise


def build(config: RunConfig) -> tuple[Task, nn.Module]:
    """The task and the model of a config, the model freshly initialised from the seed."""
    with _memory_told():
        task, model = _assemble(config)
        rescale(config, task, model)
    return task, model


def _assemble(config: RunConfig) -> tuple[Task, nn.Module]:
    """The weights are as they are drawn."""
    import torch

    task = config.task.build()
    make = partial(config.attention.build, total_steps=config.training.steps)
    torch.manual_seed(config.training.seed)
    model = config.model.build(
        input_shape=task.input_shape,
        classes=task.classes,
        make_attention=lambda heads, head_dim: make(heads=heads, head_dim=head_dim),
        vocabulary=task.vocabulary,
        per_token=task.per_token,
    )
    if getattr(model, "patched_from_outside", False):
        from eureka.patching.patch import patch

        patch(model, lambda site: make(heads=site.heads, head_dim=site.head_dim), follow=False)  # the loop tells the step
    return task, model


def rescale(config: RunConfig, task: Task, model: nn.Module, *, trained: bool = False) -> StartRecord | None:
    """Rescale the model as ``model.start`` asks, on samples that training does not draw; None with the paper's start."""
    name: Start = getattr(config.model.settings, "start", "paper")
    kind = STARTS[name]
    if kind.positions is None and kind.logits is None:
        return None
    from torch import Generator

    from eureka.starts.clear_start import clear_start

    inputs = task.sample(START_SAMPLES, Generator().manual_seed(START_SEED)).inputs
    with examining_alone():  # under torchrun too: the model and the samples are the same in every process
        made = clear_start(model, inputs, positions=kind.positions, logits=kind.logits, trained=trained)
    positions = [Rescaled(listing(row.parameters), [row.before], [row.after]) for row in made.positions]
    logits = [Rescaled(row.site, [*row.before], [*row.after]) for row in made.logits]
    return StartRecord(name, positions, logits, list(made.notes))


def check_contracts(configs: Iterable[RunConfig]) -> None:
    """Check the parts that are not ours, each once; a `ContractError` says what one of them does wrong."""
    seen: list[list[Part[Any]]] = []
    for config in configs:
        parts: list[Part[Any]] = [config.task, config.model, config.attention]
        if any(part.entry.foreign for part in parts) and parts not in seen:
            seen.append(parts)
            _check_contract(config)


def _check_contract(config: RunConfig) -> None:
    from eureka import testing

    if config.task.entry.foreign:
        testing.check_task(config.task.build())
    if config.attention.entry.foreign:
        heads = getattr(config.model.settings, "heads", 2)
        head_dim = getattr(config.model.settings, "dim", 8 * heads) // heads
        operator = config.attention.build(heads=heads, head_dim=head_dim, total_steps=config.training.steps)
        testing.check_operator(operator, heads=heads, head_dim=head_dim)
    if config.model.entry.foreign:
        task, model = build(config)
        testing.check_model(model, task)


def run(
    config: RunConfig,
    folder: str | Path | RunFolder,
    on_log: Callable[[Metrics], None] | None = None,
    origin: Origin | None = None,
) -> RunResult:
    """Train in a folder, or go on where the run was interrupted; a finished run is only read.

    Args:
        config: what to train
        folder: where the run is kept; it is made if it is not there
        on_log: is called with each line of ``metrics.jsonl``
        origin: the recipe that the config was made from; the folder keeps it

    Under torchrun every process calls this; the first one keeps the folder.
    """
    folder = folder if isinstance(folder, RunFolder) else RunFolder(Path(folder))
    _check_same(config, folder)
    if (result := folder.result()) is not None:
        return RunResult(folder, result)
    check_device(config)
    check_contracts([config])
    replicas = _join(config)
    with folder.held() if replicas.first else contextlib.nullcontext(), _memory_told():
        return RunResult(folder, _train(config, folder, replicas, on_log, origin))


def check_device(config: RunConfig) -> None:
    """Refuse a device that PyTorch does not find."""
    device = config.training.device
    if device == "cpu":
        return
    import torch

    if not (torch.cuda.is_available() if device == "cuda" else torch.backends.mps.is_available()):
        raise RequestError(f"training.device {device}: PyTorch finds no such device on this machine; use cpu.")


def _join(config: RunConfig) -> Replicas:
    from eureka.training.replicas import join_replicas

    return join_replicas(config.training.batch_size, config.training.device)


def _check_same(config: RunConfig, folder: RunFolder) -> None:
    """A folder belongs to one config."""
    stored, here = folder.config(), config.to_json()
    if stored is None or stored.parts == here or RunConfig.from_json(stored.parts) == config:
        return
    there = stored.parts
    changed = [
        f"{part}.{key} was {there.get(part, {}).get(key)!r} and is now {value!r}"
        for part, values in here.items()
        for key, value in values.items()
        if there.get(part, {}).get(key) != value
    ]
    what = "; ".join(changed) or "it has other keys"
    raise RequestError(f"{folder.path} holds a run with another config ({what}); choose another folder with --out.")


def _train(
    config: RunConfig,
    folder: RunFolder,
    replicas: Replicas,
    on_log: Callable[[Metrics], None] | None,
    origin: Origin | None,
) -> Outcome:
    import torch

    from eureka.training.loop import Loop

    torch.set_num_threads(config.training.threads)
    torch.use_deterministic_algorithms(config.training.deterministic, warn_only=True)
    task, model = _assemble(config)
    start = rescale(config, task, model)
    loop = Loop(model, task, config.training, folder, on_log if replicas.first else None, replicas, config.digest())
    if replicas.first:
        folder.write_config(StoredConfig(config.to_json()))
        if origin is not None and folder.origin() is None:
            folder.write_origin(origin)
        folder.write_environment(environment())
        folder.write_task(TaskRecord(loop.levels, token_names(task, model)))
        _keep_samples(task, folder)
        if start is not None:
            folder.write_start(start)
    outcome = _outcome(loop, loop.run())
    if replicas.first:
        folder.write_result(outcome)
    return outcome


def _keep_samples(task: Task, folder: RunFolder) -> None:
    """Keep samples for the report; a task of somebody else's that cannot be drawn has none."""
    from eureka.tasks.labelled import labelled_samples

    with contextlib.suppress(Exception):
        folder.write_samples(labelled_samples(task))


def token_names(task: Task, model: nn.Module) -> list[str] | None:
    """The names of a sample's tokens; a patch of a picture has the name of the tile that it lies in."""
    patch: tuple[int, int] | None = getattr(getattr(model, "embed", None), "patch", None)
    tiles = task.tile_names
    if patch is None or tiles is None:
        return None if task.token_names is None else list(task.token_names)
    rows, columns = (size // side for size, side in zip(task.input_shape[-2:], patch, strict=True))
    return [tiles[y * len(tiles) // rows][x * len(tiles[0]) // columns] for y in range(rows) for x in range(columns)]


def _outcome(loop: Loop, status: Status) -> Outcome:
    progress = loop.progress
    last = progress.metrics[-1] if progress.metrics else None
    return Outcome(
        status=status,
        steps=loop.step,
        seconds=round(loop.seconds, 3),
        samples=loop.step * loop.config.batch_size,
        eureka_step=progress.leap.step if progress.leap else None,
        onset_step=progress.leap.onset if progress.leap else None,
        moments=tuple(progress.leaps()),
        final_loss=_finite(last.validation_loss) if last else None,
        final_accuracy=_finite(last.validation_accuracy) if last else None,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


@cache
def environment() -> dict[str, str]:
    """Versions and machine: what the config does not decide, and what stays the same while a process lives."""
    from importlib.metadata import version

    import eureka

    packages = {name: version(name) for name in ("torch", "numpy", "scikit-learn", "pydantic")}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": Path(sys.executable).name,
        "eureka": eureka.__version__,
        **packages,
    }
