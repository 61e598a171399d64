"""`eureka tasks` lists the tasks; `eureka tasks show NAME` tells the levels of one and draws examples of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eureka.cli import listing
from eureka.cli.completion import complete_task
from eureka.cli.options import JsonOption, assignments, print_json
from eureka.cli.table import print_table
from eureka.formats import plural

if TYPE_CHECKING:
    from eureka.tasks.task import Task

app = typer.Typer(invoke_without_command=True, help="List the tasks, or show the levels and examples of one.")


@app.callback()
def tasks(context: typer.Context, json: JsonOption = False) -> None:
    """List the tasks: what models are trained on."""
    if context.invoked_subcommand is None:
        listing.tasks(json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A task.", autocompletion=complete_task)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Draw labelled examples into this PNG file.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=400, help="How many examples.")] = 12,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which examples.")] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the task, as in noise=2. May be repeated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Print where the plateaus of a task must be; with -o draw labelled examples of it."""
    from eureka.tasks.registry import TASKS

    task = TASKS.build(name, assignments(settings))
    if out is not None:
        _draw(task, out, samples, seed)
    levels = task.levels()
    if json:
        rows = [{"knows": level.knows, "loss": level.loss, "accuracy": level.accuracy} for level in levels]
        print_json({"task": name, "picture": None if out is None else str(out), "levels": rows})
        return
    print_table(["who knows", "loss", "accuracy"], [(lv.knows, f"{lv.loss:.3f}", f"{lv.accuracy:.3f}") for lv in levels])
    sys.stdout.write("-o FILE.png draws examples.\n" if out is None else f"{plural(samples, 'example')}: {out}\n")


def _draw(task: Task, out: Path, samples: int, seed: int) -> None:
    from torch import Generator

    from eureka.files import write_whole
    from eureka.tasks.gallery import gallery

    write_whole(out, gallery(task, task.sample(samples, Generator().manual_seed(seed))))
