"""One run: from a config to a trained model in a folder."""

from __future__ import annotations

import contextlib
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eureka.config import RunConfig, run_config
from eureka.errors import RequestError
from eureka.runs import Record, RunFolder

if TYPE_CHECKING:
    from torch import nn

    from eureka.tasks.task import Task
    from eureka.training import Loop
    from eureka.training.replicas import Replicas


@dataclass(frozen=True)
class RunResult:
    """How a run ended; the same as its ``result.json``."""

    folder: RunFolder
    record: Record

    @property
    def eureka_step(self) -> int | None:
        step: int | None = self.record["eureka_step"]
        return step


def build(config: RunConfig) -> tuple[Task, nn.Module]:
    """The task and the model of a config, the model freshly initialised from the seed."""
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


def run(config: RunConfig, folder: Path | RunFolder, on_log: Callable[[Record], None] | None = None) -> RunResult:
    """Carry out a run in a folder, or go on with it where it was interrupted; a finished run is only read.

    Under torchrun every process calls this; the first one keeps the folder.
    """
    folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
    _check_same(config, folder)
    if (result := folder.result()) is not None:
        return RunResult(folder, result)
    check_device(config)
    replicas = _join(config)
    with folder.held() if replicas.first else contextlib.nullcontext():
        return RunResult(folder, _carry_out(config, folder, replicas, on_log))


def check_device(config: RunConfig) -> None:
    """Say in one sentence that a device is not there."""
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
    """A folder belongs to one config for ever."""
    there, here = folder.config(), config.to_json()
    if there is None or there == here or run_config(**there) == config:
        return
    changed = [
        f"{part}.{key} was {there.get(part, {}).get(key)!r} and is now {value!r}"
        for part, values in here.items()
        for key, value in values.items()
        if there.get(part, {}).get(key) != value
    ]
    what = "; ".join(changed) or "it has other keys"
    raise RequestError(f"{folder.path} holds a run with another config ({what}); choose another folder with --out.")


def _carry_out(config: RunConfig, folder: RunFolder, replicas: Replicas, on_log: Callable[[Record], None] | None) -> Record:
    import torch

    from eureka.training import Loop

    torch.set_num_threads(config.training.threads)
    torch.use_deterministic_algorithms(config.training.deterministic, warn_only=True)
    task, model = build(config)
    loop = Loop(model, task, config.training, folder, on_log if replicas.first else None, replicas)
    if replicas.first:
        folder.write("config.json", config.to_json())
        folder.write("environment.json", environment())
        folder.write("task.json", {"levels": [asdict(level) for level in loop.levels], "tokens": token_names(task, model)})
    record = _result(loop, loop.run())
    if replicas.first:
        folder.write("result.json", record)
    return record


def token_names(task: Any, model: Any) -> list[str] | None:
    """What the tokens of a sample are called; a patch of a picture is called by the tile that it lies in."""
    patch, tiles = getattr(getattr(model, "embed", None), "patch", None), task.tile_names
    if patch is None or tiles is None:
        return None if task.token_names is None else list(task.token_names)
    rows, columns = (size // side for size, side in zip(task.input_shape[-2:], patch, strict=True))
    return [tiles[y * len(tiles) // rows][x * len(tiles[0]) // columns] for y in range(rows) for x in range(columns)]


def _result(loop: Loop, status: str) -> Record:
    progress = loop.progress
    last = (progress.records or [{}])[-1]
    return {
        "status": status,
        "steps": loop.step,
        "seconds": round(loop.seconds, 3),
        "samples": loop.step * loop.config.batch_size,
        "eureka_step": progress.moment.step if progress.moment else None,
        "onset_step": progress.moment.onset if progress.moment else None,
        "moments": [asdict(moment) for moment in progress.moments()],
        "final_loss": last.get("validation_loss"),
        "final_accuracy": last.get("validation_accuracy"),
    }


def environment() -> Record:
    """Versions and machine: what the config does not decide."""
    from importlib.metadata import version

    packages = {name: version(name) for name in ("eureka", "torch", "numpy", "scikit-learn", "pydantic")}
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "executable": Path(sys.executable).name,
        **packages,
    }
