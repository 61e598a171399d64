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

This module alone reads and writes these files (a checkpoint is written by `eureka.training.checkpoint`). A step counts the steps
done: step 0 is the model as it was initialised. No torch is needed to read a run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from eureka.errors import DamagedRunError, WorkError
from eureka.files import locked, make_folder, write_whole
from eureka.formats import number, percent
from eureka.presence import is_present, present

DIGITS = 9 * "[0-9]"
"""The pattern of a step in a file name."""
Status = Literal["finished", "stopped_early", "diverged"]
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A float that may be NaN; JSON has no NaN, so a file says null."""
MEASURES = ("entropy", "participation", "spread", "near_uniform", "near_one_hot", "grad_q", "grad_k", "grad_v", "grad_ratio")
"""The measures of a `SiteRecord`, in the order in which people should see them."""
INDUCTION = ("prefix_matching", "prefix_chance", "previous_token", "copying")
"""More measures, of runs on tasks that repeat tokens: the induction-head scores of `eureka.probes.induction`."""
T = TypeVar("T")


@dataclass(frozen=True)
class Level:
    """The best that a predictor can do which has learned only part of the task."""

    knows: str
    """the part that it has learned"""
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Metrics:
    """One line of ``metrics.jsonl``; the training figures are means over all steps since the line before."""

    step: int
    train_loss: Number
    train_accuracy: Number
    validation_loss: Number
    validation_accuracy: Number
    lr: float

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; a value that is not finite becomes None."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Leap:
    """A run left one level for the next; `eureka.training.leaps` has the rule."""

    level: int
    """which plateau it ended, from 0"""
    onset: int
    """the first logged step from which the loss stayed below the level"""
    step: int


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: Status
    steps: int
    seconds: float
    samples: int
    eureka_step: int | None
    """the step of the leap to the floor; None without one"""
    onset_step: int | None
    moments: tuple[Leap, ...] | None
    """every leap, the one from the first plateau first; None where a table tells only of the last"""
    final_loss: float | None
    final_accuracy: float | None

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers; a value that is not finite becomes None."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class SiteRecord:
    """One attention layer: by measure, a number for each head."""

    index: int
    name: str
    values: dict[str, list[Number]] = field(default_factory=dict)

    def mean(self, measure: str) -> float | None:
        """The mean over heads; None when it was not measured."""
        known = [value for value in self.values.get(measure, []) if math.isfinite(value)]
        return sum(known) / len(known) if known else None


@dataclass(frozen=True, kw_only=True)
class PositionShare:
    """How much of what the first attention works with is position, and not content (`eureka.probes.position_share`)."""

    site: str
    """the attention that is called first"""
    parameters: list[str] = field(default_factory=list)
    """what the positions are made of; empty if they are computed anew in each pass, or if there are none"""
    position: Number = math.nan
    """root mean square of the positions that are added to the content before it; NaN where none are"""
    content: Number = math.nan
    """that of the content"""
    logits: list[Number] = field(default_factory=list)
    """of the variance of a row of logits the share that comes from the positions of the keys, head by head"""
    note: str | None = None
    """why something was not measured"""

    @property
    def ratio(self) -> float:
        """rms(positions) / rms(content), which `eureka.clear_start` sets to 1."""
        return self.position / self.content if self.content > 0 else math.nan

    @property
    def of_input(self) -> float:
        """rms(positions)² / (rms(positions)² + rms(content)²)."""
        return self.ratio**2 / (1 + self.ratio**2)

    @property
    def of_logits(self) -> float:
        """The mean over heads."""
        known = [value for value in self.logits if math.isfinite(value)]
        return sum(known) / len(known) if known else math.nan

    def __str__(self) -> str:
        parts = []
        if math.isfinite(self.ratio):
            rms = f"{number(self.position)} beside {number(self.content)}"
            parts.append(f"{percent(self.of_input)} of the input (root mean square {rms}, ratio {number(self.ratio)})")
        if math.isfinite(self.of_logits):
            heads = f" ({', '.join(percent(value) for value in self.logits)} by head)" if len(self.logits) > 1 else ""
            parts.append(f"{percent(self.of_logits)} of the variance in a row of logits{heads}")
        return f"{self.site}: positions are {' and '.join(parts) or 'not measured'}{f'; {self.note}' if self.note else ''}"


@dataclass(frozen=True)
class ProbeRecord:
    """All attention layers at one training step."""

    step: int
    sites: list[SiteRecord]
    position_share: PositionShare | None = None
    """None if it was not measured, as in older runs"""

    def site(self, name: str) -> SiteRecord:
        return next(site for site in self.sites if site.name == name)

    def scalars(self, prefix: str = "attention", *, per_layer: bool = True) -> dict[str, float]:
        """For loggers: the mean over heads of every measure, of every site or over all of them, and the position shares."""
        names = (*MEASURES, *INDUCTION)
        if per_layer:
            means = {f"{prefix}/{site.name}/{measure}": site.mean(measure) for site in self.sites for measure in names}
        else:
            means = {f"{prefix}/{measure}": self._mean(measure) for measure in names}
        if (share := self.position_share) is not None:
            means |= {f"{prefix}/position_share_of_input": share.of_input, f"{prefix}/position_share_of_logits": share.of_logits}
        return {name: value for name, value in means.items() if value is not None and math.isfinite(value)}

    def _mean(self, measure: str) -> float | None:
        """Over all sites that have it."""
        found = [value for site in self.sites if (value := site.mean(measure)) is not None and math.isfinite(value)]
        return sum(found) / len(found) if found else None

    @property
    def sentence(self) -> str:
        """The state of attention in words."""
        entropy, ratio = self._mean("entropy"), self._mean("grad_ratio")
        told = "" if entropy is None else f"Rows of attention have {entropy:.3f} of the entropy that they could have"
        flow = "" if ratio is None else f", and W_Q and W_K get {ratio:.3f} of the gradient of W_V"
        return f"{told}{flow}." if told else ""

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers; a value that is not finite becomes None."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """How well one answer can be read off one representation."""

    site: str
    layer: int
    head: int | None
    """None for what all heads made together."""
    representation: str
    """q, k, v; z, the mixed values of a head; block, the output of the whole block"""
    answer: str
    accuracy: Number
    """on samples that the probe was not fitted to"""
    chance: Number
    """the share of the commonest answer"""
    bits: Number
    """online code length in bits an answer: how hard the answers are to transmit to somebody who sees the representation"""
    uniform_bits: Number
    """the same for somebody who sees nothing and knows nothing: log₂ of the number of classes"""

    def to_json(self) -> dict[str, Any]:
        """Plain texts and numbers; a value that is not finite becomes None."""
        return _plain(asdict(self))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Readings:
    """What linear probes read off a model after a number of steps."""

    step: int
    found: list[LinearProbe]

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "found": [one.to_json() for one in self.found]}


@dataclass(frozen=True)
class Probes:
    """What `eureka probe` measured last."""

    record: ProbeRecord | None = None
    linear: dict[str, Readings] = field(default_factory=dict)
    """by when: "before" the Eureka-moment, "after" it"""

    def to_json(self) -> dict[str, Any]:
        record = {} if self.record is None else {"record": self.record.to_json()}
        return record | ({"linear": {when: found.to_json() for when, found in self.linear.items()}} if self.linear else {})


@dataclass(frozen=True)
class TaskRecord:
    """What theory says of the task."""

    levels: list[Level] = field(default_factory=list)
    """the plateaus in the order in which they are left, and last the floor"""
    tokens: list[str] | None = None
    """the names of the tokens of a sample, where the task knows them"""


@dataclass(frozen=True)
class LabelledSample:
    """One sample of a task, as people can see it."""

    label: str
    picture: str = ""
    """a PNG in base 64; empty where the sample is tokens"""
    tokens: list[str] = field(default_factory=list)
    steps: dict[str, str] = field(default_factory=dict)
    """the intermediate answers on the way to the label, by name"""


@dataclass(frozen=True)
class TaskSamples:
    """Some samples of a task."""

    samples: list[LabelledSample] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    """what stands in the rows of the pictures, from the top, all of the same height; empty where that is not known"""


@dataclass(frozen=True)
class Rescaled:
    """A quantity before and after the start rescaled it: one number, or one for each head."""

    name: str
    """the parameters, or the attention layer"""
    before: list[float]
    after: list[float]


@dataclass(frozen=True)
class StartRecord:
    """What ``model.start`` changed before the first step."""

    start: str
    positions: list[Rescaled]
    """root mean squares of learned positions, by that of the content that they are added to"""
    logits: list[Rescaled]
    """row spreads of the logits"""


@dataclass(frozen=True)
class Origin:
    """The recipe that a run was made from, and the keys that were changed."""

    recipe: str
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class StoredConfig:
    """The config of a run as its file has it: readable without knowing its task, model or fix. `eureka.config` checks it."""

    parts: Mapping[str, Mapping[str, Any]]

    @cached_property
    def flat(self) -> dict[str, Any]:
        """All settings by the keys people type: ``{"training.lr": 0.0003, …}``."""
        return {f"{part}.{key}": value for part, values in self.parts.items() for key, value in values.items()}

    @property
    def task(self) -> str:
        return str(self.flat["task.name"])

    @property
    def fix(self) -> str:
        return str(self.flat["attention.name"])

    @property
    def lr(self) -> float:
        return float(self.flat["training.lr"])

    @property
    def seed(self) -> int:
        return int(self.flat["training.seed"])

    @property
    def steps(self) -> int:
        return int(self.flat["training.steps"])


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
            raise _unreadable(self.metrics_file, error) from None
        return [_parsed(lines[-2], Metrics, f"{self.metrics_file}: the last line")] if len(lines) > 1 else []

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
            raise _unreadable(path, error) from None
        return _parsed(content, kind, str(path))

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


class RecordLog:
    """A log of records while it is written: every line is whole on disk before training goes on.

    It knows its size, so that a resumed run can cut off what came after its checkpoint. Of several processes of one run only the
    first writes; the others count along.
    """

    def __init__(self, path: Path, writes: bool = True) -> None:
        self.path, self.writes = path, writes
        self.size = 0

    def open(self, size: int) -> None:
        """Go on after the first `size` bytes; the lines behind them will be logged again."""
        if self.writes:
            try:
                self._cut(size)
            except OSError as error:
                raise _unreadable(self.path, error) from None
        self.size = size

    def _cut(self, size: int) -> None:
        self.path.touch()
        if self.path.stat().st_size < size:
            raise DamagedRunError(f"{self.path} is shorter than its checkpoint knows; move the run folder away to start again.")
        with self.path.open("r+b") as file:
            file.truncate(size)

    def append(self, record: Metrics | ProbeRecord) -> None:
        """Write one line."""
        line = json.dumps(record.to_json(), allow_nan=False).encode() + b"\n"
        if self.writes:
            self._write(line)
        self.size += len(line)

    def _write(self, line: bytes) -> None:
        try:
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise WorkError(f"cannot write {self.path}: {error.strerror}; run again to go on from the last checkpoint.") from None


def read_lines(path: Path, kind: type[T], size: int | None = None) -> list[T]:
    """The whole lines of a log, or those in its first `size` bytes; a last line that was torn by a kill is left out."""
    try:
        lines = path.read_bytes()[:size].split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(path, error) from None
    return [_parsed(line, kind, f"{path}: line {number}") for number, line in enumerate(lines[:-1], start=1)]


def read_metrics(path: Path, size: int | None = None) -> list[Metrics]:
    """The lines of a log of metrics, whose steps must rise; of the whole log or of its first `size` bytes."""
    return list(iterate_metrics(path, size))


def iterate_metrics(path: Path, size: int | None = None) -> Iterator[Metrics]:
    """The same, line by line; a last line that was torn by a kill is left out."""
    step, left = -1, math.inf if size is None else size
    try:
        with path.open("rb") as file:
            for place, line in enumerate(file, start=1):
                left -= len(line)
                if left < 0 or not line.endswith(b"\n"):
                    return
                found = _parsed(line, Metrics, f"{path}: line {place}")
                if found.step <= step:
                    raise DamagedRunError(
                        f"{path}: line {place} is of step {found.step} and comes after step {step}; move the run folder away to"
                        " start again."
                    )
                step = found.step
                yield found
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from None


@dataclass(frozen=True)
class MetricsColumns:
    """A log of metrics as columns, which take a tenth of the memory of its lines."""

    columns: tuple[array[float], ...]
    """in the order of the fields of `Metrics`"""

    @classmethod
    def of(cls, folder: RunFolder) -> MetricsColumns:
        columns = tuple(array("d") for _ in fields(Metrics))
        for line in iterate_metrics(folder.metrics_file):
            for column, value in zip(columns, vars(line).values(), strict=True):
                column.append(value)
        return cls(columns)

    @property
    def steps(self) -> Any:
        return np.asarray(self.columns[0])

    @property
    def values(self) -> list[Any]:
        """Losses and accuracies."""
        return [np.asarray(column) for column in self.columns[1:-1]]

    def line(self, index: int) -> Metrics:
        step, *rest = (column[index] for column in self.columns)
        return Metrics(int(step), *rest)


def _unreadable(path: Path, error: OSError) -> DamagedRunError:
    return DamagedRunError(f"{path} cannot be used ({error.strerror}); move the run folder away to start again.")


def _parsed(content: bytes, kind: type[T], where: str) -> T:
    try:
        return _adapter(kind).validate_json(content, strict=True)  # type: ignore[arg-type, no-any-return]
    except ValidationError as error:
        problem = _problem(error)
        raise DamagedRunError(f"{where} is not what a run writes ({problem}); move the run folder away to start again.") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}" if key else str(first["msg"])


def _plain(value: Any) -> Any:
    """A value that is not finite becomes None, which JSON has."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value
