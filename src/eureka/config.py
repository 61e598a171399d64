"""The config of a run: task, model, fix and training, checked once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eureka.attention.registry import FIXES
from eureka.errors import RequestError, UnknownNameError, need
from eureka.models.registry import MODELS
from eureka.registry import Part, Registry, validated
from eureka.tasks.registry import TASKS
from eureka.training.config import TrainingConfig

if TYPE_CHECKING:
    from torch import nn

    from eureka.attention.operator import Operator
    from eureka.tasks.task import Task

PLAIN = "softmax"
"""The fix of a config that asks for none."""
PARTS: dict[str, Registry[Any]] = {"task": TASKS, "model": MODELS, "attention": FIXES}
"""The parts of a config that are chosen by name."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that decides the result of a run. `run_config` makes one: it checks the values and fills in the defaults."""

    task: Part[Task]
    model: Part[nn.Module]
    attention: Part[Operator]
    training: TrainingConfig

    @classmethod
    def from_json(cls, config: Mapping[str, Any]) -> RunConfig:
        """The config that `to_json` gave, checked. A setting that was added since then gets its default."""
        fields = [*PARTS, "training"]
        for key in config:
            if key not in fields:
                raise UnknownNameError("part of a config", key, fields)
        missing = [field for field in fields if not isinstance(config.get(field), Mapping)]
        if missing:
            raise RequestError(f"the config does not say its {', '.join(missing)}.")
        return run_config(**config)

    def to_json(self) -> dict[str, dict[str, Any]]:
        """What ``config.json`` holds: every part with all its settings."""
        return {**{part: self.part(part).to_json() for part in PARTS}, "training": self.training.model_dump(mode="json")}

    def __reduce__(self) -> tuple[Callable[..., RunConfig], tuple[dict[str, dict[str, Any]]]]:
        return RunConfig.from_json, (self.to_json(),)  # the classes of settings are made from signatures; pickle cannot find them

    def part(self, name: str) -> Part[Any]:
        """The task, the model or the fix (``"attention"``)."""
        part: Part[Any] = getattr(self, name)
        return part

    def flat(self) -> dict[str, Any]:
        """All settings by the keys people type: ``{"training.lr": 0.0003, …}``."""
        values = {**{part: self.part(part).values() for part in PARTS}, "training": self.training.model_dump()}
        return {f"{part}.{key}": value for part, settings in values.items() for key, value in settings.items()}

    def digest(self) -> str:
        """A short name for this config: two configs with the same digest give the same run."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        text = json.dumps(self.chosen(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def chosen(self) -> dict[str, dict[str, Any]]:
        """The names, and the settings that are not at their defaults: a setting that a later version adds changes nothing."""
        training = self.training.model_dump(mode="json", exclude_defaults=True)
        return {**{part: self.part(part).chosen() for part in PARTS}, "training": training}

    def but(self, changes: Mapping[str, Any]) -> RunConfig:
        """The same config with some keys changed; only the parts that change are checked again.

        A new ``attention.name`` (or task, or model) brings that one's own defaults.
        """
        parts: dict[str, dict[str, Any]] = {}
        for key in sorted(changes, key=lambda key: not key.endswith(".name")):
            part, _, setting = key.partition(".")
            if part not in (*PARTS, "training") or not setting:
                raise UnknownNameError("config key", key, self.flat())
            if part not in parts:
                parts[part] = self.training.model_dump() if part == "training" else self.part(part).values()
            if setting == "name" and parts[part].get("name") != changes[key]:
                parts[part] = {}
            parts[part][setting] = changes[key]
        same = {"task": self.task, "model": self.model, "attention": self.attention, "training": self.training}
        return run_config(**{**same, **parts})  # type: ignore[arg-type]


def run_config(
    *,
    task: Mapping[str, Any] | Part[Task],
    model: Mapping[str, Any] | Part[nn.Module],
    attention: Mapping[str, Any] | Part[Operator],
    training: Mapping[str, Any] | TrainingConfig,
) -> RunConfig:
    """A checked config with all defaults filled in. Every problem is told at once.

    >>> run_config(task={"name": "tiles"}, model={"name": "encoder"}, attention={"name": "softmax"}, training={}).attention.name
    'softmax'

    Args:
        task: its name and its settings
        model: likewise
        attention: the fix, likewise
        training: settings of the loop, as `eureka run RECIPE --help-config` lists them
    """
    need("torch")
    problems: list[RequestError] = []
    parts: dict[str, Any] = {}
    for name, given in {"task": task, "model": model, "attention": attention, "training": training}.items():
        try:
            parts[name] = _training(given) if name == "training" else _part(name, given)
        except RequestError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise RequestError(" ".join(map(str, problems)))
    _check_fix_is_used(parts["model"], parts["attention"])
    return RunConfig(**parts)


def _check_fix_is_used(model: Part[nn.Module], attention: Part[Operator]) -> None:
    """A convolutional network with two fixes is the same run twice, and a table would call it a comparison."""
    if attention.chosen() == {"name": PLAIN} or model.takes("make_attention"):
        return
    if not getattr(model.entry.load(), "patched_from_outside", False):
        raise RequestError(
            f"{model.name} has no attention that a fix could change (its class takes no make_attention), so {attention.name}"
            f" would do nothing: give --fix {PLAIN}, or attention.name={PLAIN}."
        )


def _part(name: str, given: Any) -> Part[Any]:
    if isinstance(given, Part):
        return given
    if not isinstance(given.get("name"), str):
        raise RequestError(f"{name}.name is missing; it is one of {', '.join(PARTS[name].names())}.")
    return PARTS[name].choose(given["name"], {key: value for key, value in given.items() if key != "name"})


def _training(given: Any) -> TrainingConfig:
    if isinstance(given, TrainingConfig):
        return given
    for key in given:
        if key not in TrainingConfig.model_fields:
            raise UnknownNameError("config key", f"training.{key}", (f"training.{k}" for k in TrainingConfig.model_fields))
    return validated(TrainingConfig, given, "training")
