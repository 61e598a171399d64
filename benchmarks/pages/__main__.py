"""``python -m benchmarks.pages [--out DIR]`` puts the written pages and the made ones into one folder, for mkdocs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.command import start
from benchmarks.pages.assemble import assemble


def pages(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Where the pages go; what is there is replaced.")] = Path(
        "build/docs"
    ),
) -> None:
    """Write every page of the site as Markdown."""
    assemble(out)


start(pages)
