"""The files of a run: where they are, and how each is read and written."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eureka.errors import DamagedRunError
from eureka.files import locked, make_folder, write_whole
from eureka.presence import is_present, present
from eureka.runs.logs import read_lines, read_metrics
from eureka.runs.parsing import T, parsed, unreadable
from eureka.runs.probe_records import ProbeRecord, Probes
from eureka.runs.records import Level, Metrics, Origin, Outcome, StartRecord, StoredConfig, TaskRecord, TaskSamples

DIGITS = 9 * "[0-9]"
"""The pattern of a step in a file name."""
TAIL = 4096
"""Bytes in which the last line of a log is looked for."""
WRITTEN = ("metrics.jsonl", "attention.jsonl", "attention", "checkpoints", "tensorboard", "worker.log", ".lock")
"""What a run opens or empties in place; every other file is written beside it and renamed, which replaces a link."""
PLANNED = frozenset({"config.json", "recipe.json"})
"""What is written when a run is planned."""
NEEDED: dict[str, type | tuple[type, ...]] = {
    "task.name": str,
    "attention.name": str,
    "training.lr": (int, float),
    "training.seed": int,
    "training.steps": int,
}
"""The keys of every run's config and the types of their values. A config.json without them belongs to something else, for
example to a model saved beside the run."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def attention_file(self) -> Path:
        return self.path / "attention.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def worker_log(self) -> Path:
        return self.path / "worker.log"

    def config(self) -> StoredConfig | None:
        """The config, or None where there is none or where it is not that of a run."""
        content = self._read("config.json", dict[str, Any])
        if content is None or not all(isinstance(part, dict) for part in content.values()):
            return None
        config = StoredConfig(content)
        if not all(key in config.flat for key in NEEDED):
            return None
        for key, kind in NEEDED.items():
            if not isinstance(config.flat[key], kind) or isinstance(config.flat[key], bool):
                found = f"{key}: {config.flat[key]!r}"
                raise DamagedRunError(
                    f"{self.path / 'config.json'} is not what a run writes ({found}); move the run folder away to start again."
                )
        return config

    def origin(self) -> Origin | None:
        return self._read("recipe.json", Origin)

    def environment(self) -> dict[str, str]:
        return self._read("environment.json", dict[str, str]) or {}

    def start(self) -> StartRecord | None:
        return self._read("start.json", StartRecord)

    def task(self) -> TaskRecord:
        return self._read("task.json", TaskRecord) or TaskRecord()

    def samples(self) -> TaskSamples:
        return self._read("samples.json", TaskSamples) or TaskSamples()

    def levels(self) -> list[Level]:
        """Where theory puts the plateaus and, last, the floor."""
        return self.task().levels

    def result(self) -> Outcome | None:
        """How the run ended, or None while it has not."""
        return self._read("result.json", Outcome)

    def probes(self) -> Probes | None:
        return self._read("probes.json", Probes)

    def metrics(self) -> list[Metrics]:
        """All logged lines; a last line that was torn by a kill is left out."""
        return read_metrics(self.metrics_file)

    def last_metrics(self) -> list[Metrics]:
        """The last whole line alone, without reading the others; empty where there is none."""
        try:
            with self.metrics_file.open("rb") as file:
                file.seek(max(0, self.metrics_file.stat().st_size - TAIL))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.metrics_file, error) from None
        return [parsed(lines[-2], Metrics, f"{self.metrics_file}: the last line")] if len(lines) > 1 else []

    def attention(self) -> list[ProbeRecord]:
        """All lines about attention; a last line that was torn by a kill is left out."""
        return read_lines(self.attention_file, ProbeRecord)

    def map_file(self, step: int) -> Path:
        """The file with the weights of attention at a step."""
        return self.path / "attention" / f"step-{step:09d}.npy"

    def maps(self) -> dict[int, Path]:
        """The steps at which the weights of attention were kept, and their files."""
        files = sorted((self.path / "attention").glob(f"step-{DIGITS}.npy"))
        return {int(path.stem.removeprefix("step-")): path for path in files}

    def write_config(self, config: StoredConfig) -> None:
        self._write("config.json", config.parts)

    def write_origin(self, origin: Origin) -> None:
        self._write("recipe.json", asdict(origin))

    def write_plan(self, config: StoredConfig, origin: Origin | None) -> None:
        """Write what the run is to be, without waiting for the disk: who plans the study again writes it again.

        A study of 10,000 runs would wait for minutes. The run itself writes its config durably before its first step.
        """
        self._write("config.json", config.parts, durable=False)
        if origin is not None:
            self._write("recipe.json", asdict(origin), durable=False)

    def write_environment(self, versions: Mapping[str, str]) -> None:
        self._write("environment.json", versions)

    def write_start(self, start: StartRecord) -> None:
        self._write("start.json", asdict(start))

    def write_task(self, task: TaskRecord) -> None:
        self._write("task.json", asdict(task))

    def write_samples(self, samples: TaskSamples) -> None:
        self._write("samples.json", asdict(samples))

    def write_result(self, outcome: Outcome) -> None:
        self._write("result.json", outcome.to_json())

    def write_probes(self, probes: Probes) -> None:
        self._write("probes.json", probes.to_json())

    def write_map(self, step: int, array: bytes) -> None:
        """Keep the weights of attention at a step, an array in NumPy's file format."""
        file = self.map_file(step)
        make_folder(file.parent)
        write_whole(file, array)

    def create(self) -> None:
        self.check_links()
        make_folder(self.checkpoints)

    def lay_out(self) -> frozenset[str]:
        """Make the folder of a run that is planned, or leave it as it is; the names of the files that are there.

        One look at the names in it tells whether there is a link. A plan that a power cut has left empty is taken away. The
        folder of checkpoints is made when the run begins: most of what a plan takes is new files and folders on the disk.
        """
        try:
            with os.scandir(self.path) as entries:
                links = {entry.name: entry.is_symlink() for entry in entries}
        except OSError:
            make_folder(self.path)
            return frozenset()
        if any(links.get(name) for name in WRITTEN):
            self.check_links()
        if self.metrics_file.name not in links:
            for name in PLANNED.intersection(links):
                if not (self.path / name).stat().st_size:
                    (self.path / name).unlink()
                    del links[name]
        return frozenset(links)

    def check_links(self) -> None:
        """Refuse a run folder in which a link leads elsewhere: what is written or deleted here is in here."""
        for name in WRITTEN:
            if (self.path / name).is_symlink():
                raise DamagedRunError(
                    f"{self.path / name} is a link, and a run writes and deletes only in its own folder; remove the link."
                )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out of this run; the lock ends with the process, however that ends."""
        self.create()
        busy = f"{self.path}: another process is at work on this run; wait for it or choose another folder."
        with locked(self.path / ".lock", busy), present(self.path / ".alive"):
            yield

    def at_work(self) -> bool:
        """Whether a process is at work on this run, here or on another machine."""
        return is_present(self.path / ".alive")

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self.path / name
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from None
        return parsed(content, kind, str(path))

    def _write(self, name: str, content: Mapping[str, Any], *, durable: bool = True) -> None:
        write_whole(self.path / name, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n", durable=durable)


@dataclass(frozen=True)
class Run:
    """A run whose config and result have been read, once."""

    folder: RunFolder
    config: StoredConfig
    outcome: Outcome | None

    @property
    def eureka_step(self) -> int | None:
        return None if self.outcome is None else self.outcome.eureka_step

    @property
    def unfinished(self) -> bool:
        """Whether it has begun and not ended."""
        return self.outcome is None and self.folder.metrics_file.exists()


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs in a folder: itself, or every folder below it that holds a config."""
    if (folder / "config.json").is_file():
        return [RunFolder(folder)]
    return [RunFolder(path.parent) for path in sorted(folder.glob("**/config.json"))]


def read_run(folder: RunFolder) -> Run | None:
    """A run as it is now; None where the folder holds none."""
    # the result first: a run that ends in between is then read as unfinished, never as ended without its last line
    outcome, config = folder.result(), folder.config()
    return None if config is None else Run(folder, config, outcome)
