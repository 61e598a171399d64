"""The config of a run: task, model, fix and training, checked once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from eureka.attention import FIXES
from eureka.errors import RequestError, UnknownNameError
from eureka.models import MODELS
from eureka.registry import Registry, validated
from eureka.tasks import TASKS
from eureka.training.config import TrainingConfig

PARTS: dict[str, Registry] = {"task": TASKS, "model": MODELS, "attention": FIXES}
"""The parts of a config that are chosen by name."""


class RunConfig(BaseModel):
    """Everything that decides the result of a run. Make one with `run_config`, which checks it and fills in the defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: dict[str, Any]
    model: dict[str, Any]
    attention: dict[str, Any]
    training: TrainingConfig

    def flat(self) -> dict[str, Any]:
        """All settings by the keys people type: ``{"training.lr": 0.0003, …}``."""
        return {f"{part}.{key}": value for part, values in self.model_dump().items() for key, value in values.items()}

    def digest(self) -> str:
        """A short name for this config: two configs with the same digest give the same run."""
        text = json.dumps(self.chosen(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def chosen(self) -> dict[str, Any]:
        """The names, and the settings that are not at their defaults: a setting that a later version adds changes nothing."""
        given = self.model_dump(mode="json")
        plain = {part: _complete(registry, {"name": given[part]["name"]}) for part, registry in PARTS.items()}
        defaults = run_config(**plain, training={}).model_dump(mode="json")
        return {
            part: {key: value for key, value in values.items() if key == "name" or value != defaults[part][key]}
            for part, values in given.items()
        }

    def but(self, changes: Mapping[str, Any]) -> RunConfig:
        """The same config with some keys changed, checked again.

        A new ``attention.name`` (or task, or model) brings that one's own defaults.
        """
        parts = self.model_dump()
        for key in sorted(changes, key=lambda key: not key.endswith(".name")):
            part, _, setting = key.partition(".")
            if part not in parts or not setting:
                raise UnknownNameError("config key", key, self.flat())
            if setting == "name" and parts[part]["name"] != changes[key]:
                parts[part] = {}
            parts[part][setting] = changes[key]
        return run_config(**parts)


def run_config(
    *,
    task: Mapping[str, Any],
    model: Mapping[str, Any],
    attention: Mapping[str, Any],
    training: Mapping[str, Any] | TrainingConfig,
) -> RunConfig:
    """A checked config with all defaults filled in. Every problem is told at once."""
    given = {"task": task, "model": model, "attention": attention}
    problems: list[RequestError] = []
    parts: dict[str, Any] = {}
    for part, registry in PARTS.items():
        try:
            parts[part] = _complete(registry, given[part])
        except RequestError as error:
            problems.append(error)
    try:
        parts["training"] = _training(training)
    except RequestError as error:
        problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise RequestError(" ".join(map(str, problems)))
    return RunConfig(**parts)


def _complete(registry: Registry, given: Mapping[str, Any]) -> dict[str, Any]:
    settings = {key: value for key, value in given.items() if key != "name"}
    return {"name": given["name"], **registry.settings(given["name"], settings)}


def _training(given: Mapping[str, Any] | TrainingConfig) -> TrainingConfig:
    if isinstance(given, TrainingConfig):
        return given
    for key in given:
        if key not in TrainingConfig.model_fields:
            raise UnknownNameError("config key", f"training.{key}", (f"training.{k}" for k in TrainingConfig.model_fields))
    config = validated(TrainingConfig, given, "training")
    assert isinstance(config, TrainingConfig)
    return config
