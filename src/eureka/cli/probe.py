"""`eureka probe`: what attention looks like inside a run."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError, WorkError

if TYPE_CHECKING:
    from eureka.probes import LinearProbe, ProbeRecord
    from eureka.runs import RunFolder

SEED = 20_250_101  # the same samples for every run of a task
COLUMNS = {
    "entropy": "entropy / log n",
    "participation": "Σp²",
    "spread": "spread of q·k",
    "near_uniform": "near uniform",
    "near_one_hot": "near one-hot",
    "grad_q": "|∂W_Q|",
    "grad_k": "|∂W_K|",
    "grad_v": "|∂W_V|",
    "grad_ratio": "q, k to v",
}


def probe(
    run: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run folder, or a file in its folder checkpoints.")],
    initial: Annotated[bool, typer.Option("--initial", help="Look at the model before its first step instead.")] = False,
    linear: Annotated[
        bool, typer.Option("--linear", help="Also say which answers can be read off each layer; takes a minute.")
    ] = False,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples to look at.")] = 256,
    json: JsonOption = False,
) -> None:
    """Show entropy, spread and gradients of every layer and head of a trained model."""
    folder, file = _located(run)
    task, model, step = _loaded(folder, file, initial)
    record = _measured(task, model, step, samples)
    answers = _read_off(task, model) if linear else []
    if json:
        document: dict[str, Any] = {"run": str(folder.path), **record.to_dict()}
        print_json(document | ({"linear": [asdict(answer) for answer in answers]} if linear else {}))
        return
    _print(record, answers, f"{folder.name} at step {step:,}")


def _located(path: Path) -> tuple[RunFolder, Path | None]:
    """The run, and the checkpoint that was asked for."""
    from eureka.runs import RunFolder

    folder, file = (RunFolder(path.parent.parent), path) if path.is_file() else (RunFolder(path), None)
    if folder.config() is None:
        what = "is not there" if not path.exists() else "is neither a run folder nor a checkpoint of one"
        raise RequestError(f"{path} {what}; give a folder that holds a config.json, as `eureka run` writes them.")
    return folder, file


def _loaded(folder: RunFolder, file: Path | None, initial: bool) -> tuple[Any, Any, int]:
    """The task, the model, and its step."""
    import torch

    from eureka.experiment import build, run_config
    from eureka.training.checkpoint import load_checkpoint

    config = folder.config()
    assert config is not None
    task, model = build(run_config(**config))
    if initial:
        return task, model, 0
    try:
        state = torch.load(file, map_location="cpu", weights_only=True) if file else load_checkpoint(folder.checkpoints)
    except (OSError, RuntimeError, pickle.UnpicklingError):
        raise WorkError(f"{file} is not a checkpoint of a run, or it is damaged.") from None
    if state is None:
        raise WorkError(f"{folder.path} has no checkpoint yet; --initial shows the model before its first step.")
    model.load_state_dict(state["model"])
    step = int(state["step"])
    for module in model.modules():
        if hasattr(module, "advance"):
            module.advance(step)
    return task, model, step


def _measured(task: Any, model: Any, step: int, samples: int) -> ProbeRecord:
    """One forward and one backward pass in eval mode: nothing is dropped, nothing is trained."""
    from torch import Generator

    from eureka.probes import AttentionProbe

    batch = task.sample(samples, Generator().manual_seed(SEED), "validation")
    model.eval()
    with AttentionProbe(model, samples=None) as probe, probe.look():
        probe.steps = step
        task.loss(model(batch.inputs), batch).backward()
    return probe.records[0]


def _read_off(task: Any, model: Any) -> list[LinearProbe]:
    from torch import Generator

    from eureka.probes import linear_probes

    return linear_probes(model, task, representations=("z", "block"), generator=Generator().manual_seed(SEED))


def _print(record: ProbeRecord, answers: Sequence[LinearProbe], title: str) -> None:
    from eureka.cli.table import print_table

    shown = [name for name in COLUMNS if any(name in site.values for site in record.sites)]
    print_table(["layer", "head", *(COLUMNS[name] for name in shown)], _rows(record, shown), title)
    if answers:
        columns = ["layer", "head", "answer", "accuracy", "chance", "bits", "of"]
        print_table(columns, map(_answer_row, answers), "read off by logistic probes: z of each head, then the whole block")


def _rows(record: ProbeRecord, shown: Sequence[str]) -> Iterator[list[str]]:
    for site in record.sites:
        heads = max(len(values) for values in site.values.values())
        for head in range(heads):
            cells = [site.values.get(name, []) for name in shown]
            yield [site.name, str(head), *(_number(values[head * len(values) // heads]) if values else "–" for values in cells)]


def _answer_row(found: LinearProbe) -> list[str]:
    place = [found.site, "–" if found.head is None else str(found.head), found.answer]
    return [*place, f"{found.accuracy:.3f}", f"{found.chance:.3f}", f"{found.bits:.2f}", f"{found.uniform_bits:.2f}"]


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"
