"""`eureka compare`: the same model with each fix, over learning rates and seeds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.options import JsonOption, OutOption, RecipeArgument, SetOption, assignments, listed, print_json
from eureka.errors import RequestError

if TYPE_CHECKING:
    from eureka.runs import RunFolder
    from eureka.study import Study


def compare(
    recipe: RecipeArgument,
    fix: Annotated[
        str, typer.Option(metavar="A,B,…", help="The fixes to compare; `eureka fixes` lists them.")
    ] = "softmax,norm_softmax",
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds 0 to N - 1.")] = 3,
    lr: Annotated[str | None, typer.Option(metavar="X,Y,…", help="Learning rates. [default: the recipe's]")] = None,
    out: OutOption = None,
    changes: SetOption = None,
    on: Annotated[str, typer.Option("--on", metavar="local", help="Where the runs are carried out.")] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time. [default: one for each core]")] = None,
    json: JsonOption = False,
) -> None:
    """Train the recipe with each fix and compare: who leaves the plateau, when, and how good it is afterwards.

    Runs are kept: the same command again completes what is missing, and more seeds or fixes reuse what is there.
    """
    if seeds < 1:
        raise RequestError(f"--seeds {seeds}: at least one seed is needed.")
    if on != "local":
        raise RequestError(f"--on {on}: runs are carried out on this machine; the only choice is 'local'.")
    study = _study(recipe, fix, seeds, lr, out, changes)
    folders = study.prepare()
    finished = sum(folder.result() is not None for folder in folders)
    if finished:
        sys.stderr.write(f"{finished} of {len(folders)} runs are finished already.\n")
    failures = _carry_out(folders, workers)
    _tell(recipe, study, folders, failures, json)


def _study(recipe: str, fix: str, seeds: int, lr: str | None, out: Path | None, changes: list[str] | None) -> Study:
    from eureka.attention import FIXES
    from eureka.recipes import recipe as find_recipe
    from eureka.study import Study

    base = find_recipe(recipe).but(assignments(changes))
    names = listed("--fix", fix, str)
    for name in names:
        FIXES.entry(name)
    rates = listed("--lr", lr, float) if lr is not None else [base.training.lr]
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise RequestError(f"--lr {rate:g}: a learning rate must be above 0.")
    grid = {"training.seed": range(seeds), "training.lr": rates, "attention.name": names}
    return Study.over(base, grid, out or Path("runs") / recipe)


def _carry_out(folders: list[RunFolder], workers: int | None) -> list[Any]:
    from eureka.cli.display import StudyDisplay
    from eureka.study import LocalPool

    pool = LocalPool() if workers is None else LocalPool(workers)
    try:
        with StudyDisplay(folders) as display:
            return list(pool.carry_out(folders, display))
    except (KeyboardInterrupt, SystemExit):
        finished = sum(folder.result() is not None for folder in folders)
        sys.stderr.write(f"{finished} of {len(folders)} runs are finished; the others have kept their checkpoints.\n")
        raise


def _tell(recipe: str, study: Study, folders: list[RunFolder], failures: list[Any], json: bool) -> None:
    from eureka.cli.table import print_summary
    from eureka.report import write_report
    from eureka.study import summarise
    from eureka.study.comparison import compare_fixes
    from eureka.study.pool import check_failures

    rows, comparisons = summarise(folders), compare_fixes(folders)
    page = write_report([folder.path for folder in folders], study.folder / "report.html", title=f"eureka compare {recipe}")
    if json:
        print_json(
            {
                "recipe": recipe,
                "folder": str(study.folder),
                "report": str(page),
                "levels": folders[0].levels(),
                "rows": [row.as_json() for row in rows],
                "comparisons": [comparison.as_json() for comparison in comparisons],
                "failures": [{"run": failure.folder.name, "reason": failure.reason} for failure in failures],
            }
        )
    else:
        print_summary(rows)
        for comparison in comparisons:
            sys.stdout.write(f"{comparison.fix} against {comparison.baseline}: {comparison.verdict}\n")
        sys.stdout.write(f"\nCurves of all runs: {page}\n")
    check_failures(failures, len(folders))
