"""`eureka detect`: plateaus and Eureka-moments in anyone's loss logs."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError
from eureka.files import check_folder

if TYPE_CHECKING:
    from eureka.curves.examination import Examination
    from eureka.curves.finding import Finding
    from eureka.curves.levels import Given
    from eureka.curves.readers.curve import Curve

LONG = 50_000_000
"""Reading a file of at least this many bytes shows a progress bar."""
PICTURES = 6
"""Curves of a log that are all drawn; of more, only those with a moment."""


def detect(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="LOG…",
            help="CSV, JSON, JSON Lines, a text log, TensorBoard events, a W&B run file, or a folder, also of Hugging Face,"
            " Lightning, W&B or MLflow; with one run or many.",
        ),
    ],
    column: Annotated[
        str | None, typer.Option("--column", metavar="C", help="Read only this column. (default: all losses and metrics)")
    ] = None,
    step_column: Annotated[
        str | None,
        typer.Option("--step-column", metavar="C", help="The column that counts steps. (default: the best of those that rise)"),
    ] = None,
    lr_column: Annotated[
        str | None, typer.Option("--lr-column", metavar="C", help="The column of the learning rate. (default: by its name)")
    ] = None,
    lr_file: Annotated[Path | None, typer.Option("--lr-file", metavar="FILE", help="A log of the learning rate alone.")] = None,
    rising: Annotated[
        bool | None,
        typer.Option(
            "--rising/--falling", help="Whether higher or lower values are better. (default: by the name of the metric)"
        ),
    ] = None,
    classes: Annotated[
        int | None,
        typer.Option(
            "--classes", metavar="N", min=2, help="The number of classes or tokens; a plateau at ln N is then told as chance."
        ),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option("--floor", metavar="VALUE", help="The best loss that the task allows, or with --column the best value."),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option("--level", metavar="NAME=VALUE", help="A level that a loss may sit on, as in unigram=6.5. May be repeated."),
    ] = None,
    min_confidence: Annotated[
        float, typer.Option("--min-confidence", metavar="P", min=0.0, max=1.0, help="Report moments at least this sure.")
    ] = 0.5,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Draw the curves: a .png picture, or an .html page.")
    ] = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="PAGE", help="Write a page: the curves and these words.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Follow growing logs: print events until Ctrl-C.")] = False,
    on_event: Annotated[
        str | None,
        typer.Option(
            "--on-event", metavar="COMMAND", help="Run this for each event of --watch, told by $EUREKA_EVENT, $EUREKA_STEP, …"
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say where each curve of a log sat on a plateau, where it left it abruptly, how sure that is, and what to do next."""
    from eureka.curves.examination import Examination

    pages, pictures = _outputs(html, plot)
    examination = Examination(
        column=column,
        step_column=step_column,
        lr_column=lr_column,
        lr_file=lr_file,
        rising=rising,
        given=_given(classes, floor, level or []),
        min_confidence=min_confidence,
    )
    if on_event is not None and not watch:
        raise RequestError("--on-event needs --watch: a log that is whole has no events to come.")
    if watch:
        from eureka.cli.watch_logs import watch_logs

        followed = watch_logs(files, examination, command=on_event, as_lines=json)
        logs = [log for one in followed if (log := _told(one.path, one.findings)) is not None]
    else:
        logs = [log for file in files if (log := _examined(file, examination)) is not None]
    if json:
        print_json(document(logs), indent=None if watch else 2)
    else:
        for log in logs:
            print_log(log)
    _write(logs, pages, pictures)
    if len(logs) < len(files):
        raise typer.Exit(2)


def _outputs(html: Path | None, plot: Path | None) -> tuple[list[Path], list[Path]]:
    """The pages and the pictures to write; what cannot be written is refused now."""
    from eureka.curves.plot import check_plot

    pages = [path for path in (html, plot) if path is not None and (path is html or path.suffix.lower() in (".html", ".htm"))]
    pictures = [plot] if plot is not None and plot not in pages else []
    for path in pages:
        check_folder(path)
    for path in pictures:
        check_plot(path)
    return pages, pictures


def _write(logs: list[list[Finding]], pages: list[Path], pictures: list[Path]) -> None:
    if pages and logs:
        from eureka.report.log_page import write_log_page

        for path in pages:
            write_log_page(logs, path)
    if pictures and logs:
        from eureka.curves.plot import write_plot

        for path in pictures:
            write_plot([finding for log in logs for finding in log], path)


def _examined(file: Path, examination: Examination) -> list[Finding] | None:
    with _bar(file) as progress:
        return _told(file, lambda: examination.of(file, progress))


def _told(file: Path, findings: Callable[[], list[Finding]]) -> list[Finding] | None:
    """What is found in a log; None if it cannot be read, which is said."""
    try:
        return findings()
    except RequestError as error:
        message = str(error)
        sys.stderr.write(f"eureka: {message if message.startswith(str(file)) else f'{file}: {message}'}\n")
        return None


def document(logs: Sequence[Sequence[Finding]]) -> dict[str, Any]:
    """Everything about some logs, for programs."""
    from eureka.curves.advice import advise, advise_pair
    from eureka.curves.together import pairs

    return {
        "files": [one.document() | {"next": [advice.document() for advice in advise(one)]} for log in logs for one in log],
        "together": [
            pair.document() | {"next": [advice.document() for advice in advise_pair(pair)]} for log in logs for pair in pairs(log)
        ],
    }


def _given(classes: int | None, floor: float | None, levels: list[str]) -> Given:
    """What the options say about the task."""
    from eureka.curves.levels import Given, Level

    if floor is not None and not math.isfinite(floor):
        raise RequestError(f"--floor {floor}: not a finite number.")
    found = []
    for text in levels:
        name, _, value = text.rpartition("=")
        try:
            found.append(Level(name=name.strip(), value=float(value)))
        except ValueError:
            found.append(Level(name="", value=math.nan))
        if not found[-1].name or not math.isfinite(found[-1].value):
            raise RequestError(f"--level {text}: expected NAME=VALUE, as in unigram=6.5.")
    return Given(classes=classes, floor=floor, levels=tuple(found))


def print_log(findings: Sequence[Finding]) -> None:
    """Everything about one log, for people: each curve, then what is not judged, then train and validation together."""
    from eureka.curves.advice import advise_pair
    from eureka.curves.together import pairs

    for finding in findings:
        _print(finding, picture=len(findings) <= PICTURES or bool(finding.moments))
    curve, out = findings[0].curve, sys.stdout.write
    judged = {name for finding in findings for name in (finding.curve.metric, finding.curve.step_name)}
    others = [name for name in curve.metrics if name not in judged and not any(one.endswith(f" {name}") for one in judged)]
    if others:
        out(f"{curve.file}: also there: {', '.join(others[:12])}{', …' if len(others) > 12 else ''} (choose with --column)\n")
    for pair in pairs(findings):
        if (sentence := pair.sentence()) is not None:
            out(f"{pair.train.title}: {sentence}\n")
            for advice in advise_pair(pair):
                out(_lines(f"→ {advice.sentence()}"))
    out("\n")


def _print(finding: Finding, *, picture: bool) -> None:
    """The verdict, what was read, the moments, the curve, and what to do next."""
    from eureka.curves.advice import advise
    from eureka.curves.plot import terminal_plot
    from eureka.formats import step

    curve, out = finding.curve, sys.stdout.write
    out(f"{finding.title}: {finding.verdict()}\n")
    out(f"  {curve.metric} by {curve.step_name}, {curve.points:,} points{_taken_as(curve)}\n")
    for note in finding.notes:
        out(_lines(note))
    for moment in finding.moments:
        span = " → ".join(step(at) for at in (moment.onset, moment.steepest, moment.end))
        what = "value" if curve.rising else "loss"
        out(f"  {moment.kind:8}  {span}  {what} {moment.before:.4g} → {moment.after:.4g}  confidence {moment.confidence:.2f}\n")
    for line in terminal_plot(curve.values, curve.steps, finding.moments, finding.plateaus) if picture else ():
        out(f"  {line}\n")
    for advice in advise(finding):
        out(_lines(f"→ {advice.sentence()}"))


def _lines(text: str) -> str:
    """A sentence below a verdict: broken between words in a terminal, one line for a program."""
    if not sys.stdout.isatty():
        return f"  {text}\n"
    width = max(shutil.get_terminal_size().columns, 40)
    return textwrap.fill(text, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False) + "\n"


def _taken_as(curve: Curve) -> str:
    """What the name of a curve says."""
    role = f" ({curve.role})" if curve.role != "other" else ""
    return f"{role}, more is better" if curve.rising else role


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
