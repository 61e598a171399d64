"""Every config key with its value and what it may be: for people who type ``--set``."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from eureka.config import PARTS, RunConfig
from eureka.training.config import TrainingConfig

FIXED = "fixed by the name"
LIMITS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


@dataclass(frozen=True)
class Key:
    """One key that can be set."""

    name: str
    value: str
    meaning: str


def describe_keys(config: RunConfig) -> Iterator[Key]:
    """All keys of a config, in the order of its parts."""
    values = config.flat()
    for part, registry in PARTS.items():
        name = values[f"{part}.name"]
        yield Key(f"{part}.name", name, f"one of {', '.join(registry.names())}, or module:Class")
        for setting, info in registry.schema(name).model_fields.items():
            fixed = setting in registry.entry(name).preset
            yield Key(f"{part}.{setting}", _shown(values[f"{part}.{setting}"]), FIXED if fixed else kind_of(info))
    for setting, info in TrainingConfig.model_fields.items():
        meaning = f"{info.description} ({kind_of(info)})"
        yield Key(f"training.{setting}", _shown(values[f"training.{setting}"]), meaning)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def kind_of(info: FieldInfo) -> str:
    """What a setting may be, as in ``number > 0``."""
    return " ".join([_type_name(info.annotation), *_limits(info.metadata)])


def _type_name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return " ".join([_type_name(arguments[0]), *_limits([m for a in arguments[1:] for m in getattr(a, "metadata", [a])])])
    if origin is typing.Literal:
        return " or ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_type_name, arguments))
    if origin is tuple:
        return f"[{', '.join(map(_type_name, arguments))}]"
    return "null" if annotation is type(None) else getattr(annotation, "__name__", str(annotation))


def _limits(metadata: list[Any]) -> list[str]:
    return [
        f"{sign} {getattr(m, name):g}" for m in metadata for name, sign in LIMITS.items() if getattr(m, name, None) is not None
    ]
