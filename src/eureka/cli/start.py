"""Where the `eureka` command begins: signals are caught before anything heavy is imported."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from eureka.cli.signals import INTERRUPTED, Stopped, catch_signals, ignore_signals


def main() -> NoReturn:
    """Run the command line and exit."""
    catch_signals()
    try:
        from eureka.cli.main import run_command

        code = run_command()
    except Stopped as stop:
        ignore_signals()
        sys.stderr.write(f"eureka: {INTERRUPTED}\n")
        _end(128 + stop.signum)  # a library that was interrupted while it was imported may die as the interpreter ends
    replicas = sys.modules.get("eureka.training.replicas")
    if replicas is not None and replicas.leave():
        _end(code)  # threads of the group that was left may abort the process as the interpreter ends
    sys.exit(code)


def _end(code: int) -> NoReturn:
    """End at once, with all output written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
