"""`eureka data list | fetch | path`: real data, where it is and how it gets here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from eureka.cli.completion import complete_data
from eureka.cli.options import JsonOption, print_help_alone, print_json
from eureka.cli.table import print_table
from eureka.errors import RequestError, WorkError

app = typer.Typer(invoke_without_command=True, help="List, fetch and locate the data sets.")

NamesArgument = Annotated[
    list[str],
    typer.Argument(metavar="NAME…", help="Data sets; `eureka data list` lists them.", autocompletion=complete_data),
]


@app.callback()
def data(context: typer.Context) -> None:
    """List, fetch and locate the data sets."""
    print_help_alone(context)


@app.command("list")
def list_(json: JsonOption = False) -> None:
    """List the data sets and where each of them is."""
    from eureka.data.catalogue import CATALOGUE
    from eureka.data.store import located

    found = [
        {
            "name": dataset.name,
            "summary": dataset.summary,
            "source": dataset.source,
            "bytes": dataset.size,
            "download_mb": dataset.download_mb,
            "path": str(path) if (path := located(dataset)) else None,
        }
        for dataset in CATALOGUE.values()
    ]
    if json:
        print_json({"data": found})
        return
    rows = [(d["name"], d["summary"], f"{d['download_mb']:g} MB", "here" if d["path"] else "") for d in found]
    print_table(["data set", "what it is", "download", "here?"], [tuple(map(str, row)) for row in rows])


@app.command()
def fetch(
    names: NamesArgument,
    folder: Annotated[Path | None, typer.Option("--from", metavar="DIR", help="A folder with the files; tried first.")] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="A server with the files; tried last.")] = None,
    json: JsonOption = False,
) -> None:
    """Bring data sets into the cache, each file checked by its SHA-256; one that fails does not stop the others."""
    from eureka.data.catalogue import find_dataset
    from eureka.data.fetching import default_sources
    from eureka.data.fetching import fetch as bring

    wanted = [find_dataset(name) for name in names]  # a wrong name is an error before anything is fetched
    fetched, failures = [], []
    for dataset in wanted:
        try:
            with fetch_progress(dataset.name) as progress:
                found = bring(dataset, default_sources(folder, url), progress)
        except WorkError as error:
            failures.append(str(error))
            continue
        fetched.append(found)
        if found.failures and found.failures[0].startswith("the folder"):  # the one source that the user named
            sys.stderr.write(f"{dataset.name}: passed over {found.failures[0]}\n")
        if not json:
            sys.stdout.write(f"{dataset.name}: {found.folder} (from {found.source})\n")
    if json:
        print_json({"data": [{"name": f.dataset.name, "path": str(f.folder), "source": f.source} for f in fetched]})
    if failures:
        raise WorkError("\n".join(failures))


@app.command()
def path(name: Annotated[str, typer.Argument(metavar="NAME", help="A data set.", autocompletion=complete_data)]) -> None:
    """Print the folder that holds a data set."""
    from eureka.data.catalogue import find_dataset
    from eureka.data.store import located

    found = located(find_dataset(name))
    if found is None:
        raise RequestError(f"the data set {name!r} is not here; `eureka data fetch {name}` brings it.")
    sys.stdout.write(f"{found}\n")


@contextlib.contextmanager
def fetch_progress(name: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """The bar of one data set; gives what a source calls with how far it is."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeElapsedColumn

    from eureka.cli.display import TerminalProgress

    columns = BarColumn(), DownloadColumn(), TimeElapsedColumn(), TextColumn("{task.description}")
    with TerminalProgress(*columns) as progress:
        bar = progress.add_task(name, total=None)

        def show(what: str, done: int, total: int | None) -> None:
            progress.update(bar, description=f"{name}: {what}", completed=done, total=total)

        yield show
