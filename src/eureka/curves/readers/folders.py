"""The logs of a folder: of one run or of many, by the names that programs give them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from eureka.curves.readers import mlflow
from eureka.curves.readers.columns import is_bare_role, is_metric, role_of
from eureka.curves.readers.file_types import read_file
from eureka.curves.readers.json_log import read_records
from eureka.curves.readers.table import Progress, Source, Table
from eureka.curves.readers.tensorboard import read_events
from eureka.errors import RequestError
from eureka.formats import plural

NAMES = (
    *("metrics.jsonl", "trainer_state.json", "metrics.csv", "results.csv", "progress.csv", "wandb-history.jsonl", "log.csv"),
    *("trainer_log.jsonl", "scalars.json", "summary.csv"),
)
"""What our own runs, Hugging Face, Lightning, ultralytics, RLlib, older W&B, LLaMA-Factory, MMEngine and timm call their logs."""
LOGS = (".csv", ".tsv", ".log", ".txt", ".json", ".jsonl")
DEEP = 5
"""Folders below each other that are searched."""
MANY = 500
"""Logs of one folder that are read."""


def open_log(path: Path, wanted: Sequence[str] = (), progress: Progress | None = None) -> Iterator[Source]:
    """Every log at a path, which is a file or a folder; `wanted` are columns that the user names."""
    if not path.is_dir():
        yield Source(load=partial(read_file, path, wanted, progress), hint=path.stem)
        return
    found = False
    for source in _in_folder(path, wanted, progress):
        found = True
        yield source
    if not found:
        raise RequestError(
            f"{path}: a folder without {', '.join(NAMES[:3])}, TensorBoard events, a W&B or an MLflow run{_instead(path)}"
        )


def _instead(path: Path) -> str:
    files = sorted(one.name for one in path.iterdir() if one.suffix.lower() in LOGS)
    return f"; it has {', '.join(files[:3])}{', …' if len(files) > 3 else ''}: name the file." if files else "."


def _in_folder(path: Path, wanted: Sequence[str], progress: Progress | None) -> Iterator[Source]:
    inside = _named_log(path)
    if inside is not None:
        yield Source(load=partial(read_file, inside, wanted, progress), notes=(f"read from {inside.name}",))
        return
    yield from _checkpoints(path, wanted) or _mlflow(path) or _records(path) or _below(path, wanted, progress)


def _named_log(path: Path) -> Path | None:
    return next((path / name for name in NAMES if (path / name).is_file()), None)


def _checkpoints(path: Path, wanted: Sequence[str]) -> list[Source]:
    """Hugging Face keeps the whole history in each checkpoint: the newest has all of it."""
    states = [
        (int(found[1]), one)
        for one in path.glob("checkpoint-*/trainer_state.json")
        if (found := re.search(r"-(\d+)$", one.parent.name))
    ]
    if not states:
        return []
    newest = max(states)[1]
    note = f"read from {newest.parent.name}/{newest.name}, the newest of {plural(len(states), 'checkpoint')}"
    return [Source(load=partial(read_file, newest, wanted), notes=(note,))]


def _mlflow(path: Path) -> Iterator[Source] | None:
    runs = mlflow.run_folders(path)
    if not runs:
        return None
    return (Source(load=partial(mlflow.read_run, run), run=mlflow.run_name(run)) for run in runs[:MANY])


def _records(path: Path) -> list[Source]:
    """A file for each epoch with one record in it, as AllenNLP writes them: ``metrics_epoch_0.json``, …"""
    files = {one.stem: one for one in path.iterdir() if re.fullmatch(r"metrics_epoch_\d+\.json", one.name)}
    note = f"read from {plural(len(files), 'file')} metrics_epoch_*.json"
    return [Source(load=partial(read_records, files), notes=(note,))] if len(files) > 1 else []


def _only_log(path: Path) -> Path | None:
    """The one file of a folder that can be a log by its name, if it has no other."""
    logs = [one for one in path.iterdir() if one.is_file() and one.suffix.lower() in LOGS]
    return logs[0] if len(logs) == 1 else None


def _below(path: Path, wanted: Sequence[str], progress: Progress | None) -> Iterator[Source]:
    """The logs in the folders below: named ones, W&B runs, and the event files of each folder, which are one run."""
    folders = _folders(path)
    runs = [(folder, files) for folder in folders if (files := _logs_of(folder))]
    only = _only_log(path) if not runs else None
    if only is not None:
        yield Source(load=partial(read_file, only, wanted, progress), hint=only.stem, notes=(f"read from {only.name}",))
    several = len({_run_and_split(path, folder)[0] for folder, _ in runs}) > 1
    for folder, files in runs[:MANY]:
        run, split = _run_and_split(path, folder)
        name = run if several else None
        if "tfevents" in files[0].name:
            yield Source(load=partial(_events, files), run=name, split=split)
        else:
            for file in files:
                yield Source(
                    load=partial(read_file, file, wanted),
                    run=_wandb_name(file, folder) if file.suffix == ".wandb" else name,
                    split=split,
                )


def _folders(path: Path) -> list[Path]:
    """A folder and those below it, in order of their names; not too deep."""
    found, level = [path], [path]
    for _ in range(DEEP):
        level = sorted(one for folder in level for one in folder.iterdir() if one.is_dir() and not one.is_symlink())
        found += level
    return sorted(found)


def _logs_of(folder: Path) -> list[Path]:
    """The log of a folder: a named one, else W&B run files, else event files."""
    named = _named_log(folder)
    if named is not None:
        return [named]
    files = sorted(one for one in folder.iterdir() if one.is_file())
    return [one for one in files if one.suffix == ".wandb"] or [one for one in files if "tfevents" in one.name]


def _events(files: Sequence[Path]) -> Table:
    with ExitStack() as stack:
        return read_events([(file, stack.enter_context(file.open("rb"))) for file in files])


def _run_and_split(path: Path, folder: Path) -> tuple[str, str]:
    """The run that a folder belongs to, and the split it stands for: Keras writes ``train`` beside
    ``validation``, PyTorch's `add_scalars` ``loss_train`` beside ``loss_test``."""
    inside = folder.relative_to(path)
    if is_bare_role(inside.name) or (role_of(inside.name) != "other" and is_metric(inside.name)):
        return inside.parent.as_posix(), inside.name
    return inside.as_posix(), ""


def _wandb_name(file: Path, folder: Path) -> str | None:
    """W&B keeps a run in ``run-DATE_TIME-ID/run-ID.wandb``."""
    return file.stem.removeprefix("run-") or folder.name
