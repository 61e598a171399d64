"""`eureka detect`: plateaus and Eureka-moments in anyone's loss logs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError

if TYPE_CHECKING:
    from eureka.curves.finding import Finding

LONG = 50_000_000
"""Reading a file of at least this many bytes shows a progress bar."""


def detect(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…", help="CSV, TSV, JSON Lines, trainer_state.json, TensorBoard events, or a folder with one."
        ),
    ],
    column: Annotated[str | None, typer.Option("--column", metavar="C", help="The loss. [default: guessed by name]")] = None,
    step_column: Annotated[
        str | None, typer.Option("--step-column", metavar="C", help="The step. [default: guessed by name]")
    ] = None,
    lr_column: Annotated[
        str | None, typer.Option("--lr-column", metavar="C", help="The learning rate. [default: guessed]")
    ] = None,
    lr_file: Annotated[Path | None, typer.Option("--lr-file", metavar="FILE", help="A log of the learning rate alone.")] = None,
    min_confidence: Annotated[
        float, typer.Option("--min-confidence", metavar="P", min=0.0, max=1.0, help="Report moments at least this sure.")
    ] = 0.5,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Write a plot as .html or .png.")] = None,
    json: JsonOption = False,
) -> None:
    """Say where the loss sat on a plateau, where it left it abruptly, and how sure that is."""
    from eureka.curves.finding import examine
    from eureka.curves.plot import check_plot, write_plot
    from eureka.curves.readers.curve import read_log

    if plot is not None:
        check_plot(plot)
    findings, failed = [], False
    for file in files:
        try:
            with _bar(file) as progress:
                curves = read_log(
                    file, column=column, step_column=step_column, lr_column=lr_column, lr_file=lr_file, progress=progress
                )
                findings += [examine(curve, min_confidence=min_confidence) for curve in curves]
        except RequestError as error:
            message = str(error)
            sys.stderr.write(f"eureka: {message if message.startswith(str(file)) else f'{file}: {message}'}\n")
            failed = True
    if json:
        print_json({"files": [finding.document() for finding in findings]})
    else:
        for finding in findings:
            _print(finding)
    if plot is not None and findings:
        write_plot(findings, plot)
    if failed:
        raise typer.Exit(2)


def _print(finding: Finding) -> None:
    """The verdict, the moments, and the curve, for people."""
    from eureka.curves.plot import terminal_plot
    from eureka.formats import step

    curve, out = finding.curve, sys.stdout.write
    out(f"{curve.file}: {finding.verdict()}\n")
    out(f"  {curve.metric} by {curve.step_name}, {curve.points:,} points\n")
    others = [name for name in curve.metrics if name not in (curve.metric, curve.step_name)]
    if others:
        out(f"  also there: {', '.join(others[:12])}{', …' if len(others) > 12 else ''} (choose with --column)\n")
    for moment in finding.moments:
        span = " → ".join(step(at) for at in (moment.onset, moment.steepest, moment.end))
        out(f"  {moment.kind:8}  {span}  loss {moment.before:.4g} → {moment.after:.4g}  confidence {moment.confidence:.2f}\n")
    for line in terminal_plot(curve.values, curve.steps, finding.moments, finding.plateaus):
        out(f"  {line}\n")
    out("\n")


@contextmanager
def _bar(file: Path) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on standard error for a long file, if that is a terminal."""
    size = file.stat().st_size if file.is_file() else 0
    if size < LONG or file.suffix == ".gz" or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"reading {file.name}", total=size)
        yield lambda read: progress.update(task, advance=read)
