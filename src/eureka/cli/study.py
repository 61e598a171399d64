"""`eureka study FILE.yaml`: a study described in a file. `eureka study status DIR`: how one is doing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.cli.run_study import BudgetOption, OnOption, WorkersOption, run_study
from eureka.errors import RequestError
from eureka.formats import fixed


def study(
    what: Annotated[str, typer.Argument(metavar="FILE.yaml | status", help="The study's file, or the word 'status'.")],
    folder: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="With 'status': the folder of the study.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the runs are kept. [default: runs/FILE]")
    ] = None,
    on: OnOption = "local",
    workers: WorkersOption = None,
    budget: BudgetOption = None,
    json: JsonOption = False,
) -> None:
    """Carry out the study that a file describes, or complete what is missing of it; or look at one while it runs.

    The file names a `recipe`, what to `set` for all runs, `variants`, and a `grid` over config keys.
    """
    if what == "status":
        _status(folder, json)
        return
    if folder is not None:
        raise RequestError(f"unexpected argument {folder}; the folder of the runs is given with --out.")
    from eureka.study.plan import read_plan

    path = Path(what)
    plan = read_plan(path, out or Path("runs") / path.stem)
    run_study(f"eureka study {path.name}", plan, on=on, workers=workers, budget=budget, json=json)


def _status(folder: Path | None, json: bool) -> None:
    from eureka.cli.table import print_table
    from eureka.runs import find_runs, read_run
    from eureka.study.arms import group_runs
    from eureka.study.status import run_status

    if folder is None or not folder.is_dir():
        raise RequestError(f"eureka study status: {'no folder was given' if folder is None else f'{folder} is not a folder'}.")
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
    sys.stdout.write(f"{sum(run.outcome is not None for run in runs)} of {len(runs)} runs ended.\n")
