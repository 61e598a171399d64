"""`eureka compare`: the same model with each fix, over learning rates and seeds."""

from __future__ import annotations

import itertools
import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.budget import BudgetOption
from eureka.cli.completion import complete_fixes, complete_starts
from eureka.cli.options import FastOption, JsonOption, OutOption, RecipeArgument, SetOption, assignments, listed
from eureka.cli.run_study import (
    Advice,
    MaxRunsOption,
    OnOption,
    WorkersOption,
    run_study,
)
from eureka.cli.until_sure import how_to_decide, run_until_sure
from eureka.errors import RequestError, UnknownNameError

if TYPE_CHECKING:
    from eureka.study.plan import Study
    from eureka.study.pool import Pool
    from eureka.study.summary import Summary

DEFAULT_FIXES, DEFAULT_PLACE = "softmax,norm_softmax", "local"


def compare(
    recipe: RecipeArgument,
    fix: Annotated[
        str,
        typer.Option(
            metavar="A,B,…",
            help="The fixes to compare; `eureka fixes` lists them. With settings: temperature:temperature=0.2,norm_softmax",
            autocompletion=complete_fixes,
        ),
    ] = DEFAULT_FIXES,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="How the model starts: paper,clear_positions,clear, or some of them; `eureka fixes` says what they are."
            " (default: paper)",
            autocompletion=complete_starts,
        ),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Seeds 0 to N - 1; with --until-sure at most these. (default: 3, or 30)")
    ] = None,
    lr: Annotated[str | None, typer.Option(metavar="X,Y,…", help="Learning rates. (default: the recipe's)")] = None,
    out: OutOption = None,
    changes: SetOption = None,
    fast: FastOption = False,
    on: OnOption = DEFAULT_PLACE,
    workers: WorkersOption = None,
    budget: BudgetOption = None,
    max_runs: MaxRunsOption = None,
    until_sure: Annotated[
        bool,
        typer.Option(
            "--until-sure", help="Add seeds in rounds, up to 30 or --seeds, until each comparison with softmax is decided."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Train the recipe with each fix, from each start, and compare: who leaves the plateau, when, and how good it is afterwards.

    Runs are kept: the same command again completes what is missing, and more seeds or fixes reuse what is there.

    With --until-sure it looks after 6, 9, 14, 20 and 30 seeds (fewer looks where many fixes and rates are compared at once).
    It stops comparisons that are decided, drops those that 30 seeds could hardly decide, and adds seeds to the rest, only at
    learning rates that may still be best. All looks together claim a difference where there is none in at most 5 % of studies.
    Waits are taken at each fix's best rate.
    """
    from eureka.study.plan import LARGEST_COUNT
    from eureka.study.sequential import SEEDS

    if seeds is not None and seeds < 1:
        raise RequestError(f"--seeds {seeds}: at least one seed is needed.")
    settings = [*(changes or []), *(["training.deterministic=false"] if fast else [])]

    def plan(seeds: int, most: int | None) -> Study:
        return _study(recipe, fix, start, seeds, lr, out, settings, most)

    def advise(summary: Summary, pool: Pool) -> Advice | None:
        options = {"fix": fix, "start": start, "lr": lr, "out": out, "set": changes, "fast": fast, "on": on, "workers": workers}
        return how_to_decide(summary, plan(SEEDS[-1], LARGEST_COUNT), pool, _command(recipe, options))

    title = f"eureka compare {recipe}"
    if until_sure:
        most = seeds or SEEDS[-1]
        plan(most, max_runs)  # only these are carried out, so only these are counted
        whole = plan(SEEDS[-1], LARGEST_COUNT)
        run_until_sure(title, whole, most=most, on=on, workers=workers, budget=budget, json=json)
    else:
        how, planned = f"add it with --fix softmax,{fix}", [plan(seeds or 3, max_runs)]
        run_study(title, planned, on=on, workers=workers, budget=budget, json=json, advise=advise, add_softmax=how)


def _command(recipe: str, options: Mapping[str, Any]) -> str:
    """The same comparison, until it is sure; as it can be typed here."""
    given = {key: value for key, value in options.items() if value and value not in (DEFAULT_FIXES, DEFAULT_PLACE)}
    program = sys.argv[0] if Path(sys.argv[0]).name == "eureka" and which("eureka") is None else "eureka"
    words = [program, "compare", recipe]
    for key, value in given.items():
        for each in value if isinstance(value, list) else [value]:
            words += [f"--{key}"] if each is True else [f"--{key}", str(each)]
    return shlex.join([*words, "--until-sure"])


def _study(
    recipe: str,
    fix: str,
    start: str | None,
    seeds: int,
    lr: str | None,
    out: Path | None,
    changes: list[str],
    most: int | None,
) -> Study:
    from eureka.attention.registry import FIXES
    from eureka.recipes import recipe as find_recipe
    from eureka.study.fix_choice import parse_fixes
    from eureka.study.plan import LARGEST_COUNT, MOST_RUNS, Study, check_count

    chosen_by = {"attention.name": "--fix", "training.seed": "--seeds"}
    chosen_by |= ({} if start is None else {"model.start": "--start"}) | ({} if lr is None else {"training.lr": "--lr"})
    for key, option in chosen_by.items():
        if key in assignments(changes):
            raise RequestError(f"--set {key}: here {option} chooses it; leave out one of the two.")
    base = find_recipe(recipe).but(assignments(changes))
    if start is not None and "start" not in base.to_json()["model"]:
        raise RequestError(f"--start {start}: model {base.model.name!r} has no attention, so there is nothing to start clearly.")
    fixes = parse_fixes(fix)
    for chosen in fixes:
        FIXES.choose(chosen.name, chosen.settings)
    rates = listed("--lr", lr, float) if lr is not None else [base.training.lr]
    for rate in rates:
        if not 0 < rate < float("inf"):
            raise RequestError(f"--lr {rate:g}: a learning rate must be above 0.")
    starts = [{}] if start is None else [{"model.start": name} for name in _starts(start)]
    count = min(seeds, LARGEST_COUNT)
    check_count(math.prod([count, len(rates), len(starts), len(fixes)]), most or MOST_RUNS)
    runs = itertools.product(range(count), rates, starts, fixes)  # the fix changes fastest, so that early results compare
    grid = ({"training.seed": seed, "training.lr": rate, **first, **chosen.changes} for seed, rate, first, chosen in runs)
    return Study.of(base, grid, out or Path("runs") / recipe, recipe)


def _starts(text: str) -> list[str]:
    from eureka.models.start import STARTS

    names = listed("--start", text, str)
    for name in names:
        if name not in STARTS:
            raise UnknownNameError("start", name, STARTS)
    return names
