"""Every command with its arguments and options, from the command line itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from benchmarks.pages.made import table
from eureka.cli.main import app

EXIT_CODES = "Exit codes: 0 done · 1 the work failed · 2 the request was wrong · 130 or 143 interrupted; run again to go on."


def commands_page() -> str:
    """One section a command."""
    root = typer.main.get_command(app)
    parts = ["# Commands", "Every command has `--help`. With `--json` it prints one JSON document and nothing else.", EXIT_CODES]
    for path, command in _walk(root, ("eureka",)):
        parts += [f"## {' '.join(path)}", _help(command), *_tables(command)]
    return "\n\n".join(part.rstrip("\n") for part in parts if part) + "\n"


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, which is what its help lists."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        if not below.hidden:
            yield from _walk(below, (*path, name))


def _help(command: Any) -> str:
    return str(command.help or "").strip()


def _tables(command: Any) -> Iterator[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False) and parameter.name != "help"]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    options = [one for one in shown if one.param_type_name == "option"]
    if arguments:
        yield table(["argument", "what it is"], [(f"`{one.metavar or one.name.upper()}`", one.help or "") for one in arguments])
    if options:
        yield table(["option", "what it does", "default"], [(_names(one), one.help or "", _default(one)) for one in options])


def _names(option: Any) -> str:
    names = [*option.opts, *option.secondary_opts]
    value = "" if option.is_flag else f" {option.metavar or option.name.upper()}"
    return f"`{', '.join(names)}{value}`"


def _default(option: Any) -> str:
    return "" if option.is_flag or option.default is None or callable(option.default) else f"`{option.default}`"
