"""`eureka compare`: the same model with each fix, over learning rates and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eureka.cli.options import FastOption, JsonOption, OutOption, RecipeArgument, SetOption, assignments, listed
from eureka.cli.run_study import BudgetOption, OnOption, WorkersOption, run_study
from eureka.errors import RequestError, UnknownNameError

if TYPE_CHECKING:
    from eureka.study.plan import Study


def compare(
    recipe: RecipeArgument,
    fix: Annotated[
        str, typer.Option(metavar="A,B,…", help="The fixes to compare; `eureka fixes` lists them.")
    ] = "softmax,norm_softmax",
    start: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="How the model starts; `eureka fixes` lists them. [default: the recipe's]")
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Seeds 0 to N - 1.")] = 3,
    lr: Annotated[str | None, typer.Option(metavar="X,Y,…", help="Learning rates. [default: the recipe's]")] = None,
    out: OutOption = None,
    changes: SetOption = None,
    fast: FastOption = False,
    on: OnOption = "local",
    workers: WorkersOption = None,
    budget: BudgetOption = None,
    json: JsonOption = False,
) -> None:
    """Train the recipe with each fix, from each start, and compare: who leaves the plateau, when, and how good it is afterwards.

    Runs are kept: the same command again completes what is missing, and more seeds or fixes reuse what is there.
    """
    if seeds < 1:
        raise RequestError(f"--seeds {seeds}: at least one seed is needed.")
    study = _study(recipe, fix, start, seeds, lr, out, [*(changes or []), *(["training.deterministic=false"] if fast else [])])
    run_study(f"eureka compare {recipe}", [study], on=on, workers=workers, budget=budget, json=json)


def _study(recipe: str, fix: str, start: str | None, seeds: int, lr: str | None, out: Path | None, changes: list[str]) -> Study:
    from eureka.attention.registry import FIXES
    from eureka.recipes import recipe as find_recipe
    from eureka.study.plan import Study

    base = find_recipe(recipe).but(assignments(changes))
    names = listed("--fix", fix, str)
    for name in names:
        FIXES.entry(name)
    rates = listed("--lr", lr, float) if lr is not None else [base.training.lr]
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise RequestError(f"--lr {rate:g}: a learning rate must be above 0.")
    starts = {} if start is None else {"model.start": _starts(start)}
    grid = {"training.seed": range(seeds), "training.lr": rates, **starts, "attention.name": names}
    return Study.over(base, grid, out or Path("runs") / recipe, recipe)


def _starts(text: str) -> list[str]:
    from eureka.models.start import STARTS

    names = listed("--start", text, str)
    for name in names:
        if name not in STARTS:
            raise UnknownNameError("start", name, STARTS)
    return names
