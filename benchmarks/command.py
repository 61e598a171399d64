"""The command line that every benchmark has."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from eureka.errors import EurekaError


def start(command: Callable[..., None]) -> None:
    """Run a function as a command whose options are its arguments; an error of ours is one sentence, not a traceback."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(command)
    try:
        app()
    except EurekaError as error:
        sys.exit(str(error))
