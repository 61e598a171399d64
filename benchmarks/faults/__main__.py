"""The fault suite: ``python -m benchmarks.faults verify`` and ``python -m benchmarks.faults run``."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Annotated, TypeVar

import torch
import typer

from benchmarks.command import start
from benchmarks.faults.judge import Judged, Tally, tally
from benchmarks.faults.run import chosen, judged, named
from benchmarks.faults.verify import Verified, Verifier
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.formats import NONE, fixed, percent

Only = Annotated[str | None, typer.Option("--only", metavar="CAUSE", help="A cause, or a part of the cases' names.")]
Seed = Annotated[int, typer.Option("--seed", help="Another seed draws other models and data.")]
T = TypeVar("T")


def verify(only: Only = None, seed: Seed = 0, json: JsonOption = False) -> None:
    """Does each fault stop learning, and does the same run learn without it? And does every healthy run learn?

    Scores are on held-out samples of the right question: 0 is a guess, 1 is all there is to learn. A fault that does not stop
    training (a leak, misaligned labels, repeated data) spoils what is learned.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    verifier = Verifier(seed)
    rows = _telling([(plan.name, lambda plan=plan: verifier.verify(plan)) for plan in chosen(only)])  # type: ignore[misc]
    if json:
        print_json({"rows": [{**asdict(row), "holds": row.holds} for row in rows]})
    else:
        print_table(["case", "kind", "steps", "learned", "without the fault", ""], [_verified(row) for row in rows])
    bad = [row.name for row in rows if not row.holds]
    typer.echo(f"{len(rows) - len(bad)} of {len(rows)} hold", err=True)
    raise typer.Exit(1 if bad else 0)


def _telling(work: Iterable[tuple[str, Callable[[], T]]]) -> list[T]:
    """Carry out, and say what is done."""
    done = []
    for name, carry_out in work:
        typer.echo(f"{name} …", err=True)
        done.append(carry_out())
    return done


def _verified(row: Verified) -> tuple[str, ...]:
    return (
        row.name,
        row.kind,
        str(row.steps),
        fixed(row.learned, 2),
        fixed(row.control, 2),
        "" if row.holds else "does not hold",
    )


def run(
    only: Only = None,
    seed: Seed = 0,
    tool: Annotated[list[str] | None, typer.Option("--tool", metavar="NAME", help="Whom to ask; repeatable.")] = None,
    json: JsonOption = False,
) -> None:
    """Ask eureka, or other tools, what is wrong with each case: the right cause first, among the first three, wrong, or silent.

    training-doctor, torchmortem, neuraldbg and torchdiag are asked where they are installed, as their documentation says: the
    first three watch the run from its first step; torchdiag looks at one step. What they find is read as every cause that it can
    mean. neuraldbg's ranked hypotheses need a part that is not on PyPI, so its events are read. The cost is the time of the
    answer in training steps of the same run.
    """
    torch.set_num_threads(1)
    tools = named(tool or ["eureka"])
    rows = list(judged(tools, chosen(only), seed, lambda line: typer.echo(line, err=True)))
    tallies = [tally(one.name, [row for row in rows if row.tool == one.name]) for one in tools]
    if json:
        print_json({"rows": [asdict(row) for row in rows], "tools": [asdict(row) for row in tallies]})
        return
    print_table(["tool", "case", "verdict", "found", "cost in steps"], [_judged(row) for row in rows])
    print_table(
        ["tool", "faults", "first", "first three", "wrong", "silent", "false alarms", "failed", "median cost", "largest"],
        [_tallied(row) for row in tallies],
    )


def _judged(row: Judged) -> tuple[str, ...]:
    return (row.tool, row.name, row.verdict, row.error or ", ".join(row.found[:3]) or NONE, fixed(row.cost, 0))


def _tallied(row: Tally) -> tuple[str, ...]:
    shares = (percent(share, 0) for share in (row.first, row.first_three, row.wrong, row.silent))
    alarms = f"{row.false_alarms} of {row.healthy}"
    return (row.tool, str(row.faults), *shares, alarms, str(row.failed), fixed(row.median_cost, 0), fixed(row.largest_cost, 0))


if __name__ == "__main__":
    start(verify, run)
