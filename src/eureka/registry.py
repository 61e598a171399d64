"""Names for things that can be chosen in a config: fixes, tasks, models.

An entry says where the class is, so that a listing imports none of them. By convention the keyword-only arguments of a
registered class are its *settings* (what a user types after ``--set``) and its positional ones are *context* (what the program
knows: the number of heads, the length of training). A class may also take all its settings as one pydantic model, in a
keyword-only argument called `settings`.
"""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Generic, TypeVar

from eureka.errors import RequestError, UnknownNameError

if typing.TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")


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

    def load(self) -> Any:
        """The class; imports its module."""
        module, _, attribute = self.target.partition(":")
        return getattr(importlib.import_module(module), attribute)


@dataclass(frozen=True)
class Part(Generic[T]):
    """A name that was chosen, with its settings, checked and complete. `Registry.choose` makes one."""

    kind: str
    entry: Entry
    settings: BaseModel

    @property
    def name(self) -> str:
        return self.entry.name

    def values(self) -> dict[str, Any]:
        """The name and all settings, as Python values."""
        return {"name": self.name, **self.settings.model_dump()}

    def to_json(self) -> dict[str, Any]:
        """The name and all settings, as JSON can hold them."""
        return {"name": self.name, **self.settings.model_dump(mode="json")}

    def chosen(self) -> dict[str, Any]:
        """The name, and the settings that are neither at their defaults nor fixed by the name, as JSON can hold them."""
        return {"name": self.name, **self.settings.model_dump(mode="json", exclude_defaults=True, exclude=set(self.entry.preset))}

    def build(self, **context: Any) -> T:
        """Make the thing from its settings, and from what its constructor asks of the context."""
        target = self.entry.load()
        wanted = [p for p in _parameters(target) if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        missing = [p.name for p in wanted if p.default is inspect.Parameter.empty and p.name not in context]
        if missing:
            given = ", ".join(f"{key}=…" for key in missing)
            raise RequestError(f"{self.kind} {self.name!r} needs {' and '.join(missing)}, which is not known here; give {given}.")
        chosen = {p.name: context[p.name] for p in wanted if p.name in context}
        made: T = target(**chosen, **self._arguments(target))
        return made

    def _arguments(self, target: Any) -> dict[str, Any]:
        if _own_schema(target) is not None:
            return {"settings": self.settings}
        return {key: getattr(self.settings, key) for key in type(self.settings).model_fields}


class Registry(Generic[T]):
    """The names of one kind, in the order in which people should see them; `T` is what they build."""

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

    def schema(self, name: str) -> type[BaseModel]:
        """The settings of a name as a pydantic model: types, limits and defaults."""
        return _schema(self.entry(name).load())

    def choose(self, name: str, given: Mapping[str, Any] | None = None) -> Part[T]:
        """A name with its settings: defaults are filled in and every given value is checked."""
        entry, given = self.entry(name), given or {}
        schema = self.schema(name)
        for key, value in given.items():
            if key in entry.preset and value != entry.preset[key]:
                raise RequestError(f"{self.kind} {name!r} means {key}={entry.preset[key]!r}; it cannot be {value!r}.")
            if key not in schema.model_fields:
                raise UnknownNameError(f"setting of {self.kind} {name!r}", key, schema.model_fields)
        return Part(self.kind, entry, validated(schema, {**given, **entry.preset}, f"{self.kind} {name!r}"))

    def build(self, name: str, settings: Mapping[str, Any] | None = None, /, **context: Any) -> T:
        """Choose and make in one call."""
        return self.choose(name, settings).build(**context)


def _parameters(target: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(target).parameters.values())


def _hints(target: Any) -> dict[str, Any]:
    return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)


@cache
def _own_schema(target: Any) -> type[BaseModel] | None:
    """The pydantic model that a class takes as its `settings`, if it takes one."""
    from pydantic import BaseModel

    given = inspect.signature(target).parameters.get("settings")
    if given is None or given.kind is not inspect.Parameter.KEYWORD_ONLY:
        return None
    hint = _hints(target)["settings"]
    return hint if inspect.isclass(hint) and issubclass(hint, BaseModel) else None


@cache
def _schema(target: Any) -> type[BaseModel]:
    from pydantic import ConfigDict, create_model

    if (own := _own_schema(target)) is not None:
        return own
    hints = _hints(target)
    fields: dict[str, Any] = {
        p.name: (hints[p.name], ... if p.default is inspect.Parameter.empty else p.default)
        for p in _parameters(target)
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return create_model(target.__name__, __config__=ConfigDict(extra="forbid", frozen=True), **fields)


def validated(model: type[M], given: Mapping[str, Any], what: str) -> M:
    """``model(**given)``, with every problem told at once in the user's words."""
    from pydantic import ValidationError

    try:
        return model.model_validate(dict(given))
    except ValidationError as error:
        problems = [_problem(p) for p in error.errors()]
        raise RequestError(f"{what}: {'; '.join(problems)}.") from None


def _problem(detail: Mapping[str, Any]) -> str:
    key = ".".join(str(part) for part in detail["loc"] if not str(part).startswith("function-"))
    if detail["type"] == "missing":
        return f"{key} is missing; give it a value"
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ")
    return f"{key} = {detail['input']!r} {message}" if key else message
