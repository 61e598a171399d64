"""What a committed study printed, from its table of runs: ``python -m benchmarks.tables in_context/regression``.

``--write`` puts it into the READMEs of results/, wherever one says ``<!-- python -m benchmarks.tables NAME -->``: the block of
text behind that line is what is printed, and no table there is typed by hand. It also writes the figures of every summary.json
again, as they follow from the runs today.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from typing import Annotated

import typer

from benchmarks.command import start
from benchmarks.committed import RESULTS, STUDIES, committed_runs
from eureka.cli.options import as_json
from eureka.cli.run_study import print_findings
from eureka.errors import UnknownNameError
from eureka.files import write_whole
from eureka.study.summary import summarise_runs

MARK = re.compile(r"(<!-- python -m benchmarks\.tables (\S+) -->\n```\n).*?(```\n)", re.DOTALL)
"""The line that names a study, and the block behind it."""


def printed(name: str) -> str:
    """The tables and verdicts of a committed study."""
    if name not in STUDIES:
        raise UnknownNameError("study", name, STUDIES)
    runs = committed_runs(name)
    leaps = [leap.level for run in runs if run.outcome is not None for leap in run.outcome.moments or ()]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_findings(summarise_runs(runs), plateaus=1 + max(leaps, default=0))
    return out.getvalue().strip("\n") + "\n"


def filled(text: str) -> str:
    """A README with every block that names a study as it would be printed now."""
    return MARK.sub(lambda found: f"{found[1]}{printed(found[2])}{found[3]}", text)


def summarised(name: str, text: str) -> str:
    """The summary.json of a committed study with its figures as they are today, and its folder as its README names it."""
    found = summarise_runs(committed_runs(name))
    figures = {
        "folder": f"runs/{name}",
        "report": f"runs/{name}/report.html",
        "rows": [cell.to_json() for cell in found.cells],
        "comparisons": [one.to_json() for one in found.comparisons],
        "over_rates": [one.to_json() for one in found.over_rates],
        "losses": [one.to_json() for one in found.losses],
    }
    return as_json(json.loads(text) | figures)


def tables(
    name: Annotated[str | None, typer.Argument(metavar="STUDY", help="A committed study, as every_rate/tiles.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Put the tables of all studies into the READMEs of results/.")] = False,
) -> None:
    """Print the tables and verdicts of a committed study, from its runs.csv."""
    if name is not None:
        sys.stdout.write(printed(name))
    for readme in sorted(RESULTS.rglob("README.md")) if write else ():
        write_whole(readme, filled(readme.read_text(encoding="utf-8")).encode())
    for study in STUDIES if write else ():
        summary = RESULTS / study / "summary.json"
        write_whole(summary, summarised(study, summary.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    start(tables)
