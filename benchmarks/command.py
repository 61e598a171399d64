"""The command line that every benchmark has."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from eureka.errors import EurekaError


def start(*commands: Callable[..., None]) -> None:
    """Run a function as a command whose options are its arguments, or the one of several that is named first.

    An error of ours is one sentence, not a traceback.
    """
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    for command in commands:
        app.command()(command)
    try:
        app()
    except EurekaError as error:
        sys.exit(str(error))
