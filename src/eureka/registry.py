"""Names for things that can be chosen in a config: fixes, tasks, models.

An entry says where the class is, so that a listing imports none of them. By convention the keyword-only arguments of a
registered class are its *settings* (what a user types after ``--set``) and its positional ones are *context* (what the program
knows: the number of heads, the length of training).
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from eureka.errors import RequestError, UnknownNameError

if typing.TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One name that can be chosen."""

    name: str
    target: str
    """``package.module:attribute``"""
    summary: str
    source: str = ""
    """Where the idea comes from."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Settings that this name fixes; they cannot be set to anything else."""


class Registry:
    """The names of one kind, in the order in which people should see them."""

    def __init__(self, kind: str, entries: Iterable[Entry]) -> None:
        self.kind = kind
        self._entries = {entry.name: entry for entry in entries}

    def entries(self) -> list[Entry]:
        return list(self._entries.values())

    def names(self) -> list[str]:
        return list(self._entries)

    def entry(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise UnknownNameError(self.kind, name, self._entries) from None

    def load(self, name: str) -> Any:
        """The class behind a name; imports its module."""
        module, _, attribute = self.entry(name).target.partition(":")
        return getattr(importlib.import_module(module), attribute)

    def settings(self, name: str, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """All settings of a name, with defaults filled in and every given value checked."""
        entry, model, given = self.entry(name), self.model(name), dict(given or {})
        for key, value in given.items():
            if key in entry.preset and value != entry.preset[key]:
                raise RequestError(f"{self.kind} {name!r} means {key}={entry.preset[key]!r}; it cannot be {value!r}.")
            if key not in model.model_fields:
                raise UnknownNameError(f"setting of {self.kind} {name!r}", key, model.model_fields)
        return validated(model, {**given, **entry.preset}, f"{self.kind} {name!r}").model_dump()

    def build(self, name: str, settings: Mapping[str, Any] | None = None, /, **context: Any) -> Any:
        """Make the thing: its settings, and of the context what its constructor asks for."""
        target = self.load(name)
        wanted = [p for p in _parameters(target) if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        missing = [p.name for p in wanted if p.default is inspect.Parameter.empty and p.name not in context]
        if missing:
            given = ", ".join(f"{key}=…" for key in missing)
            raise RequestError(f"{self.kind} {name!r} needs {' and '.join(missing)}, which is not known here; give {given}.")
        chosen = {p.name: context[p.name] for p in wanted if p.name in context}
        return target(**chosen, **self.settings(name, settings))

    def model(self, name: str) -> type[BaseModel]:
        """The settings of a name as a pydantic model: types, limits and defaults."""
        return _settings_model(self.load(name))


def _parameters(target: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(target).parameters.values())


@cache
def _settings_model(target: Any) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    hints = typing.get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is inspect.Parameter.empty else p.default)
        for p in _parameters(target)
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return create_model(target.__name__, __config__=ConfigDict(extra="forbid", frozen=True), **fields)


def validated(model: type[BaseModel], given: Mapping[str, Any], what: str) -> BaseModel:
    """``model(**given)``, with every problem told at once in the user's words."""
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        problems = [_problem(p) for p in error.errors()]
        raise RequestError(f"{what}: {'; '.join(problems)}.") from None


def _problem(detail: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in detail["loc"] if not str(part).startswith("function-"))
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return f"{key} = {detail['input']!r} {message}" if key else message
