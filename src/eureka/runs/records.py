"""What a run is and how it ended, as typed records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from eureka.runs.parsing import Number, plain

Status = Literal["finished", "stopped_early", "diverged"]


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
        return plain(asdict(self))  # type: ignore[no-any-return]


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
        return plain(asdict(self))  # type: ignore[no-any-return]


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
    notes: list[str] = field(default_factory=list)
    """what was drawn, left out or could not be done, a sentence each; older runs do not tell"""


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
