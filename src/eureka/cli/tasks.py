"""`eureka tasks` lists the tasks; `eureka tasks show NAME` draws examples of one and tells its levels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eureka.cli import listing
from eureka.cli.completion import complete_task
from eureka.cli.options import JsonOption, SetOption, assignments, print_json
from eureka.cli.table import print_table
from eureka.errors import WorkError

app = typer.Typer(invoke_without_command=True, help="List the tasks, or show examples of one.")


@app.callback()
def tasks(context: typer.Context, json: JsonOption = False) -> None:
    """List the tasks: what models are trained on."""
    if context.invoked_subcommand is None:
        listing.tasks(json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A task.", autocompletion=complete_task)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Where the picture goes.")] = Path("grid.png"),
    samples: Annotated[int, typer.Option("--samples", "-n", min=1, max=400, help="How many examples.")] = 12,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Which examples.")] = 0,
    settings: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Draw labelled examples of a task as a PNG, and print where its plateaus must be. Settings as in `--set tile=14`."""
    from torch import Generator

    from eureka.tasks.gallery import gallery
    from eureka.tasks.registry import TASKS

    task = TASKS.build(name, assignments(settings))
    picture = gallery(task, task.sample(samples, Generator().manual_seed(seed)))
    try:
        out.write_bytes(picture)
    except OSError as error:
        raise WorkError(f"cannot write {out}: {error.strerror}; choose another file with -o.") from None
    levels = task.levels()
    if json:
        rows = [{"knows": level.knows, "loss": level.loss, "accuracy": level.accuracy} for level in levels]
        print_json({"task": name, "picture": str(out), "levels": rows})
        return
    sys.stdout.write(f"{samples} examples: {out}\n")
    print_table(["who knows", "loss", "accuracy"], [(lv.knows, f"{lv.loss:.3f}", f"{lv.accuracy:.3f}") for lv in levels])
