"""Unchanged scripts under `eureka diagnose`: ``python -m benchmarks.attach scripts``, ``… planted`` and ``… costs``."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks.attach.costs import costs
from benchmarks.attach.run import Outcome, examine_planted, examine_scripts
from benchmarks.command import start
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.formats import NONE

Only = Annotated[str | None, typer.Option("--only", metavar="TEXT", help="A part of the scripts' names.")]


def scripts(only: Only = None, json: JsonOption = False) -> None:
    """Scripts without a fault: are their steps replayed with the same bits, and is no cause found?"""
    _print(list(examine_scripts(only)), json, right="no cause found")


def planted(only: Only = None, json: JsonOption = False) -> None:
    """Scripts with one fault planted in their text: is it found?"""
    _print(list(examine_planted(only)), json, right="cause found")


def _print(outcomes: list[Outcome], json: bool, *, right: str) -> None:
    if json:
        print_json({"rows": [one.to_json() for one in outcomes]})
    else:
        rows = [
            (one.name, one.told("loss_exact"), one.told("step_exact"), one.wanted or NONE, one.found, one.judged)
            for one in outcomes
        ]
        print_table(["script", "loss exact", "step exact", "planted", "found", ""], rows)
    exact = sum(one.captured for one in outcomes)
    typer.echo(f"{exact} of {len(outcomes)} captured; {right}: {sum(one.right for one in outcomes)}", err=True)


if __name__ == "__main__":
    start(scripts, planted, costs)
