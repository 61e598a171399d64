"""``python -m tests.hardened.fuzzing``: damaged run folders, hostile requests and hostile answers, so many of each."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import torch  # noqa: F401  # its own memory is not that of an attack
import typer

from tests.hardened.answers import hostile_answers
from tests.hardened.attack import MEGABYTES, failures, memory
from tests.hardened.folders import damaged_folders
from tests.hardened.requests import hostile_requests


def main(
    folders: Annotated[int, typer.Option(help="Damaged run folders.")] = 1000,
    requests: Annotated[int, typer.Option(help="Hostile YAML files and commands.")] = 300,
    answers: Annotated[int, typer.Option(help="Hostile answers of a web server.")] = 200,
    seed: int = 0,
) -> None:
    """Attack; exit with 1 if an attack gives a traceback, hangs, or takes much memory."""
    os.environ["no_proxy"] = "127.0.0.1"
    before, bad = memory(), 0
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        attacks = {
            "damaged run folders": damaged_folders(folders, seed, here),
            "hostile requests": hostile_requests(requests, seed, here),
            "hostile answers": hostile_answers(answers, seed),
        }
        for name, each in attacks.items():
            begun = time.perf_counter()
            found, wrong = failures(each)
            bad += len(wrong)
            sys.stdout.write("".join(f"{one}\n" for one in wrong))
            sys.stdout.write(f"{name}: {dict(found)} in {time.perf_counter() - begun:.0f} s\n")
    grown = memory() - before
    sys.stdout.write(f"{grown:.0f} MB more memory\n")
    if bad or grown > MEGABYTES:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
