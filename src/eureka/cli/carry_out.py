"""A study from its first run to its table: what `compare` and `study` share."""

from __future__ import annotations

import math
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.options import as_json, print_json
from eureka.errors import RequestError

if TYPE_CHECKING:
    from eureka.runs import RunFolder
    from eureka.study import Study
    from eureka.study.comparison import Comparison

OnOption = Annotated[
    str, typer.Option("--on", metavar="local|ray[:ADDRESS]", help="Carry the runs out on this machine or on a Ray cluster.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Runs at a time, locally. [default: one for each core]")]
BudgetOption = Annotated[str | None, typer.Option("--budget", metavar="TIME", help="Stop after this long, as in 90s, 45m or 2h.")]
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str | None) -> float:
    """``"2h"`` → 7200.0; no text, no limit."""
    if text is None:
        return math.inf
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd])", text.strip())
    if not found or float(found[1]) <= 0:
        raise RequestError(f"--budget {text}: expected a time such as 90s, 45m or 2h.")
    return float(found[1]) * UNITS[found[2]]


def carry_out(title: str, study: Study, *, on: str, workers: int | None, budget: str | None, json: bool) -> None:
    """Bring a study to its end and tell what it says."""
    limit, pool = seconds(budget), _pool(on, workers)
    folders = study.prepare()
    finished = _finished(folders)
    if finished:
        sys.stderr.write(f"{finished} of {len(folders)} runs are finished already.\n")
    failures = _work(pool, folders, limit)
    _tell(title, study, folders, failures, json)


def _pool(on: str, workers: int | None) -> Any:
    place, _, address = on.partition(":")
    if place == "local" and not address:
        from eureka.study import LocalPool

        return LocalPool() if workers is None else LocalPool(workers)
    if place == "ray":
        from eureka.study.on_ray import RayPool

        return RayPool(address or None)
    raise RequestError(f"--on {on}: the choices are 'local', 'ray' and 'ray:ADDRESS'.")


def _work(pool: Any, folders: list[RunFolder], limit: float) -> list[Any]:
    from eureka.cli.display import StudyDisplay

    try:
        with StudyDisplay(folders) as display:
            return list(pool.carry_out(folders, display, limit))
    except (KeyboardInterrupt, SystemExit):
        sys.stderr.write(f"{_finished(folders)} of {len(folders)} runs are finished; the others have kept their checkpoints.\n")
        raise


def _finished(folders: list[RunFolder]) -> int:
    return sum(folder.result() is not None for folder in folders)


def _tell(title: str, study: Study, folders: list[RunFolder], failures: list[Any], json: bool) -> None:
    from eureka.cli.table import print_summary
    from eureka.report import write_report
    from eureka.runs import write_atomically
    from eureka.study import summarise
    from eureka.study.comparison import compare_fixes
    from eureka.study.pool import check_failures
    from eureka.study.table import write_runs

    rows, comparisons = summarise(folders), compare_fixes(folders)
    page = write_report([folder.path for folder in folders], study.folder / "report.html", title=title)
    write_runs(folders, study.folder / "runs.csv")
    unfinished = len(folders) - _finished(folders)
    document = {
        "title": title,
        "folder": str(study.folder),
        "report": str(page),
        "levels": folders[0].levels(),
        "rows": [row.as_json() for row in rows],
        "comparisons": [comparison.as_json() for comparison in comparisons],
        "unfinished": unfinished,
        "failures": [{"run": failure.folder.name, "reason": failure.reason} for failure in failures],
    }
    write_atomically(study.folder / "summary.json", as_json(document).encode())
    if json:
        print_json(document)
    else:
        print_summary(rows)
        sys.stdout.write("".join(f"{_told(comparison)}\n" for comparison in comparisons))
        sys.stdout.write(f"\nCurves of all runs: {page}\n")
    check_failures(failures, len(folders))
    if unfinished:
        sys.stderr.write(f"{unfinished} of {len(folders)} runs are not finished; the same command goes on.\n")


def _told(comparison: Comparison) -> str:
    where = ", ".join(f"{key} {value}" for key, value in comparison.setting.items())
    return f"{comparison.fix} against {comparison.baseline}{where and f' ({where})'}: {comparison.verdict}"
