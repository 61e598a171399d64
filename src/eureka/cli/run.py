"""`eureka run`: one run; run again to resume."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eureka.cli.options import FastOption, JsonOption, OutOption, RecipeArgument, SetOption, assignments, print_json

if TYPE_CHECKING:
    from eureka.config import RunConfig


def run(
    recipe: RecipeArgument,
    changes: SetOption = None,
    out: OutOption = None,
    fast: FastOption = False,
    json: JsonOption = False,
    help_config: Annotated[bool, typer.Option("--help-config", help="List every key that --set takes, with its value.")] = False,
) -> None:
    """Carry out one run, or go on with it where it was interrupted; a finished run is only shown."""
    from eureka.recipes import recipe as find_recipe

    config = find_recipe(recipe).but(assignments(changes) | ({"training.deterministic": False} if fast else {}))
    if help_config:
        _list_keys(config)
        return
    _carry_out(config, out or Path("runs") / recipe, json)


def _carry_out(config: RunConfig, root: Path, json: bool) -> None:
    from eureka.cli.progress import RunProgress
    from eureka.experiment import run as carry_out
    from eureka.study.grid import run_name
    from eureka.study.status import run_status
    from eureka.training import Interrupted

    folder = root / run_name(config)
    try:
        with RunProgress(config.training.steps) as progress:
            result = carry_out(config, folder, progress)
    except Interrupted as stop:
        sys.stderr.write(f"{stop}.\n")
        raise typer.Exit(128 + stop.signum) from None
    if os.environ.get("RANK", "0") != "0":  # under torchrun the first process speaks for all
        return
    if json:
        print_json({"folder": str(folder), "config": config.to_json(), **result.record})
        return
    status = run_status(result.folder)
    accuracy = "" if status.accuracy is None else f" Accuracy {status.accuracy:.3f} at step {status.step:,}."
    sys.stdout.write(f"{status.text[0].upper()}{status.text[1:]}.{accuracy}\n{folder}\n")


def _list_keys(config: RunConfig) -> None:
    from eureka.cli.keys import describe_keys
    from eureka.cli.table import print_table

    print_table(["key", "value", "what it may be"], [(key.name, key.value, key.meaning) for key in describe_keys(config)])
