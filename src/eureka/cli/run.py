"""`eureka run`: one run; run again to resume."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.completion import complete_fix
from eureka.cli.options import FastOption, JsonOption, OutOption, RecipeArgument, SetOption, assignments, print_json
from eureka.errors import RequestError
from eureka.formats import fixed

if TYPE_CHECKING:
    from eureka.config import RunConfig


def run(
    recipe: RecipeArgument,
    fix: Annotated[
        str | None,
        typer.Option(
            metavar="FIX",
            help="The fix, as in norm_softmax or temperature:temperature=0.2. (default: the recipe's)",
            autocompletion=complete_fix,
        ),
    ] = None,
    changes: SetOption = None,
    out: OutOption = None,
    fast: FastOption = False,
    json: JsonOption = False,
    help_config: Annotated[bool, typer.Option("--help-config", help="List every key that --set takes, with its value.")] = False,
) -> None:
    """Carry out one run, or go on with it where it was interrupted; a finished run is only shown."""
    from eureka.recipes import recipe as find_recipe

    chosen = {} if fix is None else _one_fix(fix)
    config = find_recipe(recipe).but(chosen | assignments(changes) | ({"training.deterministic": False} if fast else {}))
    if help_config:
        _list_keys(config)
        return
    _run(recipe, config, out or Path("runs") / recipe, json)


def _one_fix(text: str) -> dict[str, Any]:
    from eureka.attention.registry import FIXES
    from eureka.study.fix_choice import parse_fixes

    [chosen, *others] = parse_fixes(text)
    if others:
        raise RequestError(f"--fix {text}: a run has one fix; `eureka compare` takes several.")
    FIXES.choose(chosen.name, chosen.settings)
    return chosen.changes


def _run(recipe: str, config: RunConfig, root: Path, json: bool) -> None:
    from eureka.cli.display import folder_status, run_progress
    from eureka.cli.run_study import tell_own_data
    from eureka.experiment import run
    from eureka.study.plan import origin, run_name
    from eureka.training.signals import Interrupted

    folder = root / run_name(config)
    tell_own_data([config])
    try:
        with run_progress(config.training.steps) as show:
            result = run(config, folder, show, origin(recipe, config))
    except Interrupted as stop:
        sys.stderr.write(f"{stop}.\n")
        raise typer.Exit(128 + stop.signum) from None
    if os.environ.get("RANK", "0") != "0":  # under torchrun the first process speaks for all
        return
    if json:
        print_json({"folder": str(folder), "config": config.to_json(), **result.outcome.to_json()})
        return
    status = folder_status(result.folder)
    accuracy = "" if status.accuracy is None else f" Accuracy {fixed(status.accuracy)} at step {status.step:,}."
    sys.stdout.write(f"{status.text[0].upper()}{status.text[1:]}.{accuracy}\n{folder}\n")


def _list_keys(config: RunConfig) -> None:
    from eureka.cli.keys import describe_keys
    from eureka.cli.table import print_table

    print_table(["key", "value", "what it may be"], [(key.name, key.value, key.meaning) for key in describe_keys(config)])
