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
        sys.stdout.flush()
        os._exit(128 + stop.signum)  # a library that was interrupted while it was imported may die as the interpreter ends
    sys.exit(code)
