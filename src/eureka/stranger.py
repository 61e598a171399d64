"""Another package is called `eureka` where ours is called `eureka-moments`; installed beside each other they share a folder."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

OUR_AUTHOR = "The eureka maintainers"
"""Ours was called `eureka` too before its first release."""


def warn_of_stranger() -> None:
    """Warn in one sentence if somebody else's package `eureka` is installed here."""
    if not any(_holds_one(folder) for folder in sys.path):
        return
    from importlib.metadata import metadata

    found = metadata("eureka")
    if found["Author"] != OUR_AUTHOR:
        warnings.warn(
            f"another package that is called eureka ({found['Version']}: {found['Summary']}) is installed here and shares a"
            " folder with ours; mend it with: pip uninstall eureka; pip install --force-reinstall --no-deps eureka-moments",
            stacklevel=3,
        )


def _holds_one(folder: str) -> bool:
    """Whether a folder of installed packages says that it holds one called `eureka`."""
    try:
        return any(Path(folder).glob("eureka-*.*-info"))  # .dist-info or .egg-info; ours is eureka_moments-…
    except OSError:  # a zip file
        return False
