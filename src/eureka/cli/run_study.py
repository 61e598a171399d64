"""A study from its first run to its table and report: what `compare` and `study` share."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.budget import seconds
from eureka.cli.options import as_json, print_json
from eureka.cli.signals import Stopped
from eureka.errors import RequestError
from eureka.formats import duration, listing, plural

if TYPE_CHECKING:
    from eureka.config import RunConfig
    from eureka.runs import Level, Run, RunFolder
    from eureka.study.arms import Grouping
    from eureka.study.comparison import Comparison
    from eureka.study.losses import LossComparison
    from eureka.study.plan import Study
    from eureka.study.pool import Failure, Pool
    from eureka.study.summary import Summary

OnOption = Annotated[
    str, typer.Option("--on", metavar="local|ray[:ADDRESS]", help="Carry the runs out on this machine or on a Ray cluster.")
]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Runs at a time, locally. (default: one for each core)")]
MaxRunsOption = Annotated[
    int | None, typer.Option("--max-runs", metavar="N", min=1, help="Refuse a study of more runs than that. (default: 10,000)")
]
Advise = Callable[["Summary", "Pool"], "Advice | None"]
MOST_NAMED = 6
"""Runs that are named in a sentence."""


@dataclass(frozen=True)
class Advice:
    """The command that decides what is open, and what it takes at least: the runs up to its next look."""

    command: str
    seeds: int
    runs: int
    workers: int
    seconds: float | None

    def __str__(self) -> str:
        at_least = f"at least {plural(self.runs, 'more run')}, up to {self.seeds} seeds"
        time = "" if self.seconds is None else f", about {duration(self.seconds)} on {plural(self.workers, 'core')}"
        return f"To decide it ({at_least}{time}):\n  {self.command}"


def run_study(
    title: str,
    studies: Sequence[Study],
    *,
    on: str,
    workers: int | None,
    budget: str | None,
    json: bool,
    advise: Advise | None = None,
    add_softmax: str | None = None,
) -> None:
    """Bring studies to their end, one after the other, and say what each has found.

    advise        says what to do about a study with too few runs to tell
    add_softmax   how to add softmax to a study without it; None where that is no question
    """
    from eureka.study.pool import check_failures

    end, pool = time.monotonic() + seconds(budget), make_pool(on, workers)
    for study in studies:
        study.check()
        sys.stderr.write(f"{plural(len(study.configs), 'run')} in {study.folder}.\n")
        tell_own_data(study.configs)
    folders = [study.prepare() for study in studies]
    documents: list[dict[str, Any]] = []
    failures: list[Failure] = []
    for study, runs in zip(studies, folders, strict=True):
        name = title if len(studies) == 1 else f"{title}: {study.folder.name}"
        summary, document, failed = _carry_out(name, study, runs, pool, end, advise)
        documents.append(document)
        failures += failed
        if not json:
            print_summary(summary, document, heading=name if len(studies) > 1 else None, add_softmax=add_softmax)
    if json:
        print_json(documents[0] if len(studies) == 1 else {"title": title, "studies": documents})
    check_failures(failures, sum(map(len, folders)))
    sys.stderr.write(_not_finished([run for runs in folders for run in runs], budget))


def _not_finished(folders: Sequence[RunFolder], budget: str | None) -> str:
    """Which runs were not begun and how many were interrupted; empty if all have ended."""
    left = [folder for folder in folders if folder.result() is None]
    if not left:
        return ""
    new = [folder for folder in left if not folder.last_metrics()]
    begun = len(left) - len(new)
    why = "" if budget is None else f"The budget of {budget} has ended. "
    parts = [f"{plural(begun, 'run')} of {len(folders)} interrupted"] if begun else []
    parts += [f"{plural(len(new), 'run')} of {len(folders)} not started ({_named(new, folders)})"] if new else []
    return f"{why}{listing(parts)}; the same command goes on.\n"


def _named(some: Sequence[RunFolder], folders: Sequence[RunFolder]) -> str:
    """The labels of the first ones, and how many more there are."""
    from eureka.runs import read_run
    from eureka.study.arms import group_runs

    grouping = group_runs([run for run in map(read_run, folders) if run is not None])
    first = {folder.path for folder in some[:MOST_NAMED]}
    more = [f"{len(some) - MOST_NAMED:,} more"] if len(some) > MOST_NAMED else []
    return "; ".join([*(grouping.label(run) for run in grouping.runs if run.folder.path in first), *more])


def tell_own_data(configs: Iterable[RunConfig]) -> None:
    """Say what was read of the user's own text; it is encoded here once, and kept for the runs."""
    from eureka.data.text import is_own

    own = {str(one.task.to_json()): one.task for one in configs if is_own(one.task.values().get("corpus", "sotu"))}
    for task in own.values():
        sys.stderr.write(f"{task.build().about()}\n")


def _carry_out(
    title: str, study: Study, folders: Sequence[RunFolder], pool: Pool, end: float, advise: Advise | None
) -> tuple[Summary, dict[str, Any], list[Failure]]:
    from eureka.study.summary import summarise_runs

    runs = read_runs(folders)
    if finished := sum(run.outcome is not None for run in runs):
        sys.stderr.write(f"{finished} of {len(folders)} runs are finished already.\n")
    failures = bring_to_end(pool, runs, end - time.monotonic())
    summary = summarise_runs(read_again(runs))
    advice = advise(summary, pool) if advise and not failures else None
    return summary, write_summary(title, study.folder, summary, failures, to_decide=advice), failures


def make_pool(on: str, workers: int | None) -> Pool:
    place, _, address = on.partition(":")
    if place == "local" and not address:
        from eureka.study.pool import LocalPool

        return LocalPool() if workers is None else LocalPool(workers)
    if place == "ray":
        from eureka.study.ray_pool import RayPool

        return RayPool(address or None)
    raise RequestError(f"--on {on}: the choices are 'local', 'ray' and 'ray:ADDRESS'.")


def bring_to_end(pool: Pool, runs: Sequence[Run], limit: float, headline: Callable[[], str] = str) -> list[Failure]:
    """Carry out the runs that have not ended and show how they are doing; an interruption is told and passed on."""
    unfinished = [run.folder for run in runs if run.outcome is None]
    if not unfinished:
        return []
    from eureka.cli.display import StudyDisplay

    try:
        with StudyDisplay(runs, headline) as display:
            return pool.run(unfinished, display, limit)
    except Stopped:
        finished = len(runs) - len(unfinished) + sum(folder.result() is not None for folder in unfinished)
        sys.stderr.write(f"{finished} of {len(runs)} runs are finished; the others have kept their checkpoints.\n")
        raise


def read_runs(folders: Sequence[RunFolder]) -> list[Run]:
    """The runs of folders that a study has laid out, each read once."""
    from eureka.runs import read_run

    return [run for run in map(read_run, folders) if run is not None]


def read_again(runs: Sequence[Run]) -> list[Run]:
    """The same runs as they are now; one that has ended stays as it is."""
    from eureka.runs import read_run

    return [run if run.outcome is not None else read_run(run.folder) or run for run in runs]


def write_summary(
    title: str,
    folder: Path,
    summary: Summary,
    failures: Sequence[Failure],
    *,
    to_decide: Advice | None = None,
    until_sure: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Write the report, ``runs.csv`` and ``summary.json``; the document is what the last one holds."""
    from eureka.files import write_whole
    from eureka.report.write import write_report_of
    from eureka.study.summary import write_runs

    page = write_report_of(summary, folder / "report.html", title=title)
    write_runs(summary.runs, folder / "runs.csv")
    document = {
        "title": title,
        "folder": str(folder),
        "report": str(page),
        "levels": [asdict(level) for level in _levels(summary)],
        "rows": [cell.to_json() for cell in summary.cells],
        "comparisons": [comparison.to_json() for comparison in summary.comparisons],
        "over_rates": [one.to_json() for one in summary.over_rates],
        "losses": [one.to_json() for one in summary.losses],
        "unfinished": summary.unfinished,
        "failures": [{"run": failure.folder.name, "reason": failure.reason} for failure in failures],
        "to_decide": None if to_decide is None else asdict(to_decide),
        "until_sure": until_sure,
    }
    write_whole(folder / "summary.json", as_json(document).encode())
    return document


def _levels(summary: Summary) -> Sequence[Level]:
    """Those of the first run that has them; a run that was taken from a table has none."""
    return next(filter(None, (run.folder.levels() for run in summary.runs)), [])


def print_summary(summary: Summary, document: dict[str, Any], heading: str | None = None, add_softmax: str | None = None) -> None:
    """The tables, a sentence for each comparison, and where the curves are."""
    if heading:
        sys.stdout.write(f"\n{heading}\n")
    print_findings(summary, plateaus=len(document["levels"]) - 1, add_softmax=add_softmax)
    if document["to_decide"]:
        sys.stdout.write(f"{Advice(**document['to_decide'])}\n")
    sys.stdout.write(f"\nCurves of all runs: {document['report']}\n")


def print_findings(summary: Summary, *, plateaus: int, add_softmax: str | None = None) -> None:
    """The tables, and a sentence for each comparison; or why there is none.

    plateaus      of the task
    add_softmax   how to add it where it is not among the arms; None says nothing of it
    """
    from eureka.cli.table import print_cells, print_over_rates

    if summary.cells:
        print_cells(summary.cells, plateaus=plateaus, losses=bool(summary.losses))
    else:
        sys.stdout.write("No run has ended yet.\n")
    print_over_rates(summary.over_rates)
    sys.stdout.write("".join(f"{_sentence(comparison)}\n" for comparison in summary.comparisons))
    if repeated := summary.grouping.repeated:
        sys.stdout.write(f"Left out: {plural(repeated, 'run')} with the settings and the seed of another one.\n")
    if add_softmax is not None:
        sys.stdout.write(_no_verdict(summary.grouping, add_softmax))
    if summary.losses:
        from eureka.study.losses import after_steps

        sys.stdout.write(f"\nLoss after {after_steps(summary.losses)}, each at its own best learning rate:\n")
        sys.stdout.write("".join(f"{_sentence(one)}\n" for one in summary.losses))


def _no_verdict(grouping: Grouping, add_softmax: str) -> str:
    """Why arms are not compared that have no softmax beside them; empty where none are."""
    from eureka.study.arms import BASELINE

    several = [condition for condition in grouping.conditions if len(condition.arms) > 1]
    alone = [condition for condition in several if all(arm.key.fix != BASELINE for arm in condition.arms)]
    if not alone:
        return ""
    where = f" for {'; '.join(condition.label for condition in alone)}" if len(alone) < len(several) else ""
    return f"There is no verdict{where}: verdicts compare with {BASELINE}, which is not among the arms; {add_softmax}.\n"


def _sentence(one: Comparison | LossComparison) -> str:
    where = f" ({one.condition.label})" if one.condition.label else ""
    return f"{one.arm.label} against {one.baseline.label}{where}: {one.verdict}"
