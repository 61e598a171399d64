"""Names for things that can be chosen in a config: fixes, tasks, models.

A name is one of ours, one that an installed package offers as an entry point (group ``eureka.fixes``, ``eureka.tasks`` or
``eureka.models``), or ``module:Class``. An entry says where the class is, so that a listing imports none of them. A module is
looked for in the user's folder first (see `user_folder`), then among the installed packages.

By convention the keyword-only arguments of a
registered class are its *settings* (what a user types after ``--set``) and its positional ones are *context* (what the program
knows: the number of heads, the length of training). A class may also take all its settings as one pydantic model, in a
keyword-only argument called `settings`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import pkgutil
import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from eureka.errors import MissingContextError, RequestError, UnknownNameError

if typing.TYPE_CHECKING:
    from pydantic import BaseModel

T = TypeVar("T")
M = TypeVar("M", bound="BaseModel")

FOLDER = "EUREKA_FOLDER"
"""The environment variable that tells worker processes the user's folder."""


EXPECTED = {
    "class": "module:Class, as in my_package.my_module:MyClass",
    "function": "module:function, as in my_package.my_module:my_case",
}


def user_folder() -> str:
    """The folder whose modules can be named as ``module:Class``: that of the command, which its workers are told."""
    return os.environ.get(FOLDER) or str(Path.cwd())


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

    loaded: Any = field(default=None, repr=False, compare=False)
    """The class itself, where it was given and not named."""

    @property
    def foreign(self) -> bool:
        """Whether the class is not one of ours."""
        return not self.target.startswith("eureka.")

    def load(self) -> Any:
        """The class; imports its module."""
        if self.loaded is not None:
            return self.loaded
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
            raise MissingContextError(
                f"{self.kind} {self.name!r} needs {' and '.join(missing)}, which is not known here; give {given}.", missing
            )
        chosen = {p.name: context[p.name] for p in wanted if p.name in context}
        made: T = target(**chosen, **self._arguments(target))
        return made

    def takes(self, name: str) -> bool:
        """Whether its constructor asks for that part of the context."""
        return any(p.name == name for p in _parameters(self.entry.load()))

    def _arguments(self, target: Any) -> dict[str, Any]:
        if _own_schema(target) is not None:
            return {"settings": self.settings}
        return {key: getattr(self.settings, key) for key in type(self.settings).model_fields}


class Registry(Generic[T]):
    """The names of one kind, in the order in which people should see them; `T` is what they build."""

    def __init__(self, kind: str, entries: Iterable[Entry], *, base: str = "", group: str = "") -> None:
        self.kind, self.base, self.group = kind, base, group
        self._entries = {entry.name: entry for entry in entries}

    def entries(self) -> list[Entry]:
        """All names: ours, then those of installed packages."""
        return [*self._entries.values(), *self._installed()]

    def names(self) -> list[str]:
        return [entry.name for entry in self.entries()]

    def entry(self, name: str) -> Entry:
        """What a name stands for; nothing is imported."""
        if name in self._entries:
            return self._entries[name]
        installed = {entry.name: entry for entry in self._installed()}
        if name in installed:
            return installed[name]
        if ":" in name and self.base:
            return Entry(name=name, target=name, summary="", source=name.partition(":")[0])
        raise UnknownNameError(self.kind, name, [*self._entries, *installed])

    def schema(self, name: str) -> type[BaseModel]:
        """The settings of a name as a pydantic model: types, limits and defaults."""
        return self._schema(self.entry(name))

    def find_class(self, name: str) -> Any:
        """The class, or the function, that a name stands for; imports it, and checks one that is not ours."""
        entry = self.entry(name)
        return _checked_class(entry, self.base, f"{self.kind} {name!r}") if entry.foreign and self.base else entry.load()

    def choose(self, name: str | type[T], given: Mapping[str, Any] | None = None) -> Part[T]:
        """A name (or a class) with its settings: defaults are filled in and every given value is checked."""
        entry, given = self.entry(name) if isinstance(name, str) else _entry_of(name), given or {}
        schema = self._schema(entry)
        for key, value in given.items():
            if key in entry.preset and value != entry.preset[key]:
                raise RequestError(f"{self.kind} {entry.name!r} means {key}={entry.preset[key]!r}; it cannot be {value!r}.")
            if key not in schema.model_fields:
                raise UnknownNameError(f"setting of {self.kind} {entry.name!r}", key, schema.model_fields)
        return Part(self.kind, entry, validated(schema, {**given, **entry.preset}, f"{self.kind} {entry.name!r}"))

    def build(self, name: str | type[T], settings: Mapping[str, Any] | None = None, /, **context: Any) -> T:
        """Choose and make in one call."""
        return self.choose(name, settings).build(**context)

    def _schema(self, entry: Entry) -> type[BaseModel]:
        if not entry.foreign or not self.base:
            return _schema(entry.load())
        what = f"{self.kind} {entry.name!r}"
        return _foreign_schema(_checked_class(entry, self.base, what), what)

    def _installed(self) -> list[Entry]:
        """What installed packages offer. A name that is taken already gives way: its entry is called ``module:Class``."""
        points = sorted(importlib.metadata.entry_points(group=self.group), key=lambda p: p.name) if self.group else []
        names = [*self._entries, *(point.name for point in points)]
        return [_installed_entry(point, point.name if names.count(point.name) == 1 else point.value) for point in points]


def _installed_entry(point: importlib.metadata.EntryPoint, name: str) -> Entry:
    """The summary is that of the package, which can be read without importing it."""
    package: Mapping[str, Any] = {} if point.dist is None else point.dist.metadata.json
    summary, source = (str(package.get(key, "")) for key in ("summary", "name"))
    return Entry(name=name, target=point.value.replace(" ", ""), summary=summary, source=source)


def _entry_of(cls: type[Any]) -> Entry:
    name = f"{cls.__module__}:{cls.__qualname__}"
    return Entry(name=name, target=name, summary="", source=cls.__module__, loaded=cls)


def _checked_class(entry: Entry, base: str, what: str) -> Any:
    """A foreign class, once it is known to be of the right kind."""
    found = entry.loaded if entry.loaded is not None else find_named(entry.target, what)
    wanted = Entry(name="", target=base, summary="").load()
    if not inspect.isclass(found):
        raise RequestError(f"{what} is a {type(found).__name__}, not a class; name a subclass of {base.replace(':', '.')}.")
    if not issubclass(found, wanted):
        raise RequestError(f"{what} is a class, but not a subclass of {base.replace(':', '.')}.")
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise RequestError(f"{what} does not define {' and '.join(missing)}.")
    return found


def find_named(target: str, what: str, kind: str = "class") -> Any:
    """What ``module:Class`` or ``module:function`` names; every way in which that can fail is one sentence."""
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in [*module_name.split("."), *attribute.split(".")]):
        raise RequestError(f"{what}: expected {EXPECTED[kind]}.")
    module = _import(module_name, what)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            alike = inspect.isclass if kind == "class" else inspect.isfunction
            names = [name for name, value in vars(found).items() if alike(value) and not name.startswith("_")]
            raise UnknownNameError(f"{kind} in {getattr(module, '__file__', None) or module_name}", part, names)
        found = getattr(found, part)
    return found


def _import(module: str, what: str) -> Any:
    folder = user_folder()
    importlib.invalidate_caches()
    if sys.path[0] != folder:  # first, as with `python -m`
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise RequestError(f"{what}: {module} imports {error.name!r}, which is not installed.") from error
        near = [found.name for found in pkgutil.iter_modules([folder])]
        raise UnknownNameError(f"module in {folder} or among the installed packages", error.name, near) from None
    except Exception as error:
        raise RequestError(f"{what}: importing {module} failed with {type(error).__name__}: {error}.") from error


@cache
def _foreign_schema(target: Any, what: str) -> type[BaseModel]:
    """The settings of a foreign class; an error says which argument cannot be a setting, and why."""
    from pydantic import PydanticUserError

    try:
        hints = _hints(target)
    except NameError as error:
        raise RequestError(f"{what}: the type of one of its arguments cannot be resolved ({error}).") from None
    for parameter in _parameters(target):
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            if parameter.name == "name":
                raise RequestError(f"{what}: a setting cannot be called 'name', which is the name of the part itself.")
            if parameter.name not in hints:
                raise RequestError(f"{what}: its setting {parameter.name!r} has no type; annotate it.")
    try:
        return _schema(target)
    except PydanticUserError as error:
        raise RequestError(f"{what}: {str(error).splitlines()[0]}") from None


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
    raised = detail.get("ctx", {}).get("error")
    if isinstance(raised, RequestError):  # a whole sentence, which says what was given
        return str(raised).removesuffix(".")
    message = str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input ").removesuffix(".")
    joined = ":" if detail["type"] in ("value_error", "assertion_error") else ""
    return f"{key} = {detail['input']!r}{joined} {message}" if key else message
