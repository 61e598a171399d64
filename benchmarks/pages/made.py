"""Markdown: tables, and what every made page needs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from eureka.registry import Entry, Registry

ROOT = Path(__file__).parents[2]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar in a cell is escaped.

    >>> print(table(["a", "b"], [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    <BLANKLINE>
    """
    lines = [list(header), ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines).replace("| --- ", "|---").replace("--- |", "---|") + "\n"


def prose(text: str) -> str:
    """A docstring as Markdown: without its examples, which the reference has; double backquotes become single ones."""
    text = inspect.cleandoc(text).split(">>>")[0].rstrip()
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def described(target: Any) -> str:
    """What a class or a function says about itself."""
    return prose(target.__doc__ or "")


def settings_table(registry: Registry[Any], entry: Entry) -> str:
    """The settings of a part with their defaults."""
    from eureka.cli.keys import kind_of

    fields = {name: info for name, info in registry.schema(entry.name).model_fields.items() if name not in entry.preset}
    if not fields:
        return "It has no settings.\n"
    rows = [
        (
            f"`{name}`",
            "must be given" if info.is_required() else f"`{info.get_default(call_default_factory=True)!r}`",
            kind_of(info),
        )
        for name, info in fields.items()
    ]
    return table(["setting", "default", "what it may be"], rows)
