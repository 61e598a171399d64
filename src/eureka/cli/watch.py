"""`eureka watch`: the report of a study in the browser, while its runs go on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from eureka.cli.study import study_folder
from eureka.errors import RequestError

LOOPBACK = "127.0.0.1"


def watch(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a study, or its YAML file.")],
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="The address to listen on; with another than 127.0.0.1 other machines can connect, with the token.",
        ),
    ] = LOOPBACK,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Which port; 0 is any that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser of this machine.")] = False,
) -> None:
    """Serve the report of a study and keep it up to date while runs go on: progress, time left, runs by state, curves, verdicts.

    It prints an address with a token, without which nothing can be seen. It only reads: runs are neither begun nor disturbed, and
    it may be started and ended at any time. For a study on another machine that you reach by ssh, start it there with
    `--port 8000`, and here `ssh -L 8000:127.0.0.1:8000 MACHINE`.
    """
    from eureka.cli.signals import stop_event
    from eureka.report.live.server import check_server, is_loopback, new_token, serve
    from eureka.report.live.study import LiveStudy

    if folder.suffix in (".yaml", ".yml"):
        folder = study_folder(folder)
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder.")
    check_server()
    study = LiveStudy(folder, f"eureka watch {folder}")
    with stop_event() as stop, serve(study, new_token(), host, port) as address:
        if not is_loopback(host):
            _say("anyone who can reach this machine and knows the address can see the study.")
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
        if browser:
            _open(address)
        stop.wait()
    _say(f"no longer watching {folder}; the runs go on.")


def _open(address: str) -> None:
    import webbrowser

    if not webbrowser.open(address):
        _say("there is no browser to open; use the address.")


def _say(text: str) -> None:
    sys.stderr.write(f"eureka: {text}\n")
    sys.stderr.flush()
