"""`eureka study FILE.yaml`: a study described in a file. `eureka study status DIR`: how one is doing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eureka.cli.budget import BudgetOption
from eureka.cli.completion import complete_study
from eureka.cli.options import JsonOption, print_json
from eureka.cli.run_study import MaxRunsOption, OnOption, WorkersOption, run_study
from eureka.errors import RequestError
from eureka.formats import fixed

if TYPE_CHECKING:
    from eureka.runs import Run
    from eureka.study.plan import Study
    from eureka.study.status import RunStatus


def study(
    what: Annotated[
        str,
        typer.Argument(
            metavar="FILE.yaml | status", help="The study's file, or the word 'status'.", autocompletion=complete_study
        ),
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR | FILE.yaml]", help="With 'status': the folder of the study, or its file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the runs are kept. (default: runs/FILE)")
    ] = None,
    known: Annotated[
        Path | None,
        typer.Option("--known", metavar="CSV", help="The runs.csv of an earlier study: runs that are in it are not done again."),
    ] = None,
    on: OnOption = "local",
    workers: WorkersOption = None,
    budget: BudgetOption = None,
    max_runs: MaxRunsOption = None,
    json: JsonOption = False,
) -> None:
    """Carry out the study that a file describes, or complete what is missing of it; or look at one while it runs.

    The file names a `recipe`, what to `set` for all runs, `variants`, and a `grid` over config keys; or, as `studies`, the files
    of several studies, which are carried out one after the other.
    """
    if what == "status":
        _status(study_folder(folder, out), json)
        return
    if folder is not None:
        raise RequestError(f"unexpected argument {folder}; the folder of the runs is given with --out.")
    from eureka.study.plan import MOST_RUNS, read_plans

    path = Path(what)
    plans = read_plans(path, out or default_folder(path), max_runs or MOST_RUNS)
    if known is not None:
        _take(known, plans)
    title, how = f"eureka study {path.name}", "add `attention.name: softmax` to the variants or the grid of its file"
    run_study(title, plans, on=on, workers=workers, budget=budget, json=json, add_softmax=how)


def _take(known: Path, plans: Sequence[Study]) -> None:
    """Say how many runs come from a table: they have outcomes and no curves."""
    from eureka.study.summary import read_outcomes

    outcomes = read_outcomes(known)
    for plan in plans:
        plan.check_known(outcomes, known)
    taken = sum(plan.take(outcomes) for plan in plans)
    sys.stderr.write(f"{taken} runs are taken from {known}; the report has no curves of them.\n")


def default_folder(file: Path) -> Path:
    """Where the runs of a study's file are kept."""
    return Path("runs") / file.stem


def study_folder(named: Path | None, out: Path | None = None) -> Path:
    """The folder of a study that is named by its folder or by its file."""
    if named is None:
        raise RequestError("eureka study status: no folder was given.")
    if named.suffix not in (".yaml", ".yml") or named.is_dir():
        found = named
    elif not named.exists():
        raise RequestError(f"cannot read {named}: there is no such file.")
    else:
        found = out or default_folder(named)
        if not found.is_dir():
            raise RequestError(f"{named} has no runs in {found} yet; `eureka study {named}` begins them, --out says where else.")
    if not found.is_dir():
        raise RequestError(f"eureka study status: {found} is not a folder.")
    return found


def _status(folder: Path, json: bool) -> None:
    from eureka.cli.table import print_table
    from eureka.runs import find_runs, read_run
    from eureka.study.arms import group_runs
    from eureka.study.status import run_status

    runs = [run for run in map(read_run, find_runs(folder)) if run is not None]
    if not runs:
        raise RequestError(f"{folder} holds no runs.")
    statuses = [(run, run_status(run)) for run in runs]
    if json:
        keys = ("step", "steps", "loss", "accuracy", "phase")
        print_json({"runs": [{"run": run.folder.name} | {key: getattr(s, key) for key in keys} for run, s in statuses]})
        return
    label = group_runs(runs).label
    rows = [(label(run), f"{s.step:,} / {s.steps:,}", fixed(s.loss), fixed(s.accuracy), s.text) for run, s in statuses]
    print_table(["run", "step", "loss", "accuracy", "state"], rows)
    sys.stdout.write(f"{sum(run.outcome is not None for run in runs)} of {len(runs)} runs ended{_others(statuses)}.\n")


def _others(statuses: Sequence[tuple[Run, RunStatus]]) -> str:
    """How many are at work, and how many were interrupted."""
    found = [status for _, status in statuses]
    counts = {"at work": sum(s.live for s in found), "interrupted": sum(s.phase == "interrupted" for s in found)}
    return "".join(f", {count:,} {word}" for word, count in counts.items() if count)
