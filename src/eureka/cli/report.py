"""`eureka report`: one HTML file from run folders."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR…", help="Run folders, or folders that hold some.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")] = Path("report.html"),
    json: JsonOption = False,
) -> None:
    """Write a self-contained page with the curves, the plateaus, the Eureka-moments and the table of all runs found."""
    from eureka.report.write import write_report

    for folder in folders:
        if not folder.is_dir():
            raise RequestError(f"{folder} is not a folder.")
    if not output.parent.is_dir():
        raise RequestError(f"cannot write {output}: there is no folder {output.parent}.")
    page = write_report(folders, output)
    if json:
        print_json({"report": str(page)})
    else:
        sys.stdout.write(f"{page}\n")
