"""Options that several verbs share, and how their texts become values."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from eureka.cli.completion import complete_key, complete_recipe
from eureka.errors import RequestError

T = TypeVar("T")

RecipeArgument = Annotated[
    str,
    typer.Argument(metavar="RECIPE", help="The name of a recipe; `eureka recipes` lists them.", autocompletion=complete_recipe),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a config key, as in training.lr=1e-3. May be repeated.",
        autocompletion=complete_key,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]
FastOption = Annotated[
    bool, typer.Option("--fast", help="Let the device choose faster kernels whose last bits may change from run to run.")
]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="Where the runs are kept. (default: runs/RECIPE)")]


def assignments(texts: Sequence[str] | None) -> dict[str, Any]:
    """``["training.lr=1e-3", "model.patch=[4, 8]"]`` → ``{"training.lr": 0.001, "model.patch": [4, 8]}``."""
    found = {}
    for text in texts or []:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise RequestError(f"--set {text}: expected KEY=VALUE, as in training.lr=1e-3.")
        found[key.strip()] = _value(value.strip())
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def listed(option: str, text: str, convert: Callable[[str], T]) -> list[T]:
    """``"softmax,norm_softmax"`` → the distinct values, in order."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise RequestError(f"{option} names nothing; give one value or several with commas between them.")
    values = []
    for part in parts:
        try:
            values.append(convert(part))
        except ValueError:
            raise RequestError(f"{option} {part}: not a {convert.__name__}.") from None
    return list(dict.fromkeys(values))


def print_help_alone(context: typer.Context) -> None:
    """Without a verb a command says what it can do."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help())  # with rich, Typer prints it itself


def as_json(document: Any, *, indent: int | None = 2) -> str:
    """As programs and people can both read it."""
    return json.dumps(document, indent=indent, allow_nan=False) + "\n"


def print_json(document: Any, *, indent: int | None = 2) -> None:
    """One document on standard output; without an indent on one line."""
    sys.stdout.write(as_json(document, indent=indent))
