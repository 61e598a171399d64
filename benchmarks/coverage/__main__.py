"""``python -m benchmarks.coverage [NAME…] [--starts] [--first] [--json FILE] [--page docs/coverage.md]``"""

from __future__ import annotations

import json as js
import multiprocessing
import resource
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks.command import start
from benchmarks.coverage import page as patches
from benchmarks.coverage import starts as clear_starts
from benchmarks.coverage.judge import Verdict, architectures, classes, judge

FEW = 4
"""Classes of an architecture that are tried, where one that runs is enough."""
SECONDS, GIGABYTES = 60, 8
"""Of processor time for one class, and for the process of an architecture."""


class Topic(NamedTuple):
    """What is judged, the verdicts that count, the best first, and how they are written."""

    judge: Callable[[str, Any], Verdict]
    judged: tuple[str, ...]
    page: Callable[[Sequence[Verdict], str, int], str]


PATCHES = Topic(judge, patches.JUDGED, patches.page)
STARTS = Topic(clear_starts.judge_start, clear_starts.JUDGED, clear_starts.page)


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Architectures; all by default.")] = None,
    starts: Annotated[bool, typer.Option(help="Judge a clear start of each model instead of a patch.")] = False,
    first: Annotated[bool, typer.Option(help="Only the first class of an architecture that runs.")] = False,
    json: Annotated[
        Path | None, typer.Option(help="Add every verdict to this file, a line each; what is there is not run.")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="Write the verdicts as a page.")] = None,
) -> None:
    """Patch every small model of transformers with plain softmax and compare it with itself, or give it a clear start."""
    import transformers

    topic = STARTS if starts else PATCHES

    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    warnings.filterwarnings("ignore")
    verdicts = read(json) if json is not None and json.exists() else []
    done = {one.architecture for one in verdicts}
    for name in names or [name for name in architectures() if name not in done]:
        found = apart(name, topic, first=first)
        verdicts += found
        for one in found:
            typer.echo(f"{one.architecture:28} {one.model:48} {one.kind:8} {one.detail[:120]}")
            if json is not None:
                with json.open("a", encoding="utf-8") as file:
                    file.write(js.dumps(asdict(one)) + "\n")
    if page is not None:
        page.write_text(topic.page(verdicts, transformers.__version__, len(architectures())), encoding="utf-8")


def read(path: Path) -> list[Verdict]:
    return [Verdict(**js.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def apart(name: str, topic: Topic, *, first: bool = False) -> list[Verdict]:
    """The verdicts of an architecture, from a process of its own whose time and memory are bounded."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(name, theirs, topic, first))
    process.start()
    theirs.close()
    found: list[Verdict] = []
    while True:
        try:
            found.append(ours.recv())
        except EOFError:
            break
    process.join()
    if process.exitcode:
        found.append(Verdict(name, "?", "unrun", f"the process ended with {process.exitcode}"))
    return found


def _work(name: str, out: Connection, topic: Topic, first: bool) -> None:
    limit = GIGABYTES << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGPROF, _too_long)
    try:
        found = list(classes(name))
    except Exception as error:
        out.send(Verdict(name, "?", "unbuilt", repr(error)[:200]))
        return
    if first:  # the plainest names first, and no more than a few
        found = sorted(found, key=lambda cls: (not cls.__name__.endswith("Model"), len(cls.__name__)))[:FEW]
    for cls in found:
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            verdict = topic.judge(name, cls)
            out.send(verdict)
            if first and verdict.kind in topic.judged:
                return
        except BaseException as error:
            out.send(Verdict(name, cls.__name__, "unrun", repr(error)[:200]))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


class TooLong(BaseException):
    """No error of the model, so nobody else catches it."""


def _too_long(*_: Any) -> None:
    raise TooLong(f"it took more than {SECONDS} s of processor time")


if __name__ == "__main__":
    start(main)
